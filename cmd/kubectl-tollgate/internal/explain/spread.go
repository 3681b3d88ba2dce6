package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy/spread"
)

// Spread is a topology spread constraint of a pod, counted with its own nodeTaintsPolicy and with
// either of them.
type Spread struct {
	TopologyKey       string `json:"topologyKey"`
	WhenUnsatisfiable string `json:"whenUnsatisfiable"`
	MaxSkew           int    `json:"maxSkew"`
	MinDomains        int    `json:"minDomains"`
	NodeTaintsPolicy  string `json:"nodeTaintsPolicy"`
	NodeAffinity      string `json:"nodeAffinityPolicy"`
	// Self is 1 if the constraint counts the pod itself.
	Self    int      `json:"self"`
	Domains []Domain `json:"domains,omitempty"`
	// Honor and Ignore are the counts with nodeTaintsPolicy Honor and Ignore.
	Honor  Measure `json:"honor"`
	Ignore Measure `json:"ignore"`
	// Excluded are the nodes that do not count, by reason.
	Excluded []ExcludedNodes `json:"excluded,omitempty"`
	// Stuck are the domains that keep the minimum low for good, because Taints keep the pod from all
	// of their nodes. With nodeTaintsPolicy Honor they would not count.
	Stuck  []string `json:"stuck,omitempty"`
	Taints []string `json:"taints,omitempty"`
}

// Measure has the counts of a constraint.
type Measure struct {
	// Minimum is the number of pods from which the skew is counted.
	Minimum int `json:"minimum"`
	// Domains is the number of domains that count.
	Domains int `json:"domains"`
	// Allows is the number of nodes on which the skew would not exceed maxSkew, in spite of other
	// obstacles.
	Allows int `json:"allows"`
}

// Domain has the nodes with the same value of the topology key.
type Domain struct {
	Value string `json:"value"`
	// Counts is false if none of its nodes counts.
	Counts bool `json:"counts"`
	Nodes  int  `json:"nodes"`
	Pods   int  `json:"pods"`
	// Honor and Ignore are the skew with the pod in the domain, for either nodeTaintsPolicy; absent
	// if it does not count.
	Honor  *int `json:"honor,omitempty"`
	Ignore *int `json:"ignore,omitempty"`
	// Exceeds is true if the skew with the constraint's own policy is more than maxSkew.
	Exceeds bool `json:"exceeds,omitempty"`
}

// ExcludedNodes are nodes that do not count for the same reason.
type ExcludedNodes struct {
	Why   string   `json:"why"`
	Nodes []string `json:"nodes"`
}

// spreadOf counts the constraints of a pod with DoNotSchedule. Own are the counts with their own
// nodeTaintsPolicy.
func spreadOf(spreading *spread.Spreading, cluster *spread.Cluster, own *spread.Filtered) (list []Spread) {
	if len(own.Counts) == 0 {
		return nil
	}
	both := spreading.SideBySide(cluster)
	wedges := spreading.Wedges(cluster.Nodes())
	for i := range own.Counts {
		count, honor, ignore := &own.Counts[i], &both.Honor.Counts[i], &both.Ignore.Counts[i]
		c := &count.Constraint
		s := Spread{
			TopologyKey: c.TopologyKey, WhenUnsatisfiable: string(c.WhenUnsatisfiable), MaxSkew: c.MaxSkew, MinDomains: c.MinDomains,
			NodeTaintsPolicy: string(c.NodeTaintsPolicy), NodeAffinity: string(c.NodeAffinityPolicy), Self: count.Self,
			Honor: measure(both.Honor, i), Ignore: measure(both.Ignore, i), Excluded: excluded(cluster, count),
		}
		for _, d := range ignore.Domains { // They are all that count with either policy.
			counted := count.Domain(d.Value)
			one := Domain{
				Value: d.Value, Counts: counted.Nodes > 0, Nodes: counted.Nodes, Pods: counted.Pods,
				Ignore: new(d.Pods + ignore.Self - ignore.Minimum()), Exceeds: counted.Pods+count.Self-count.Minimum() > c.MaxSkew,
			}
			if h := honor.Domain(d.Value); h.Nodes > 0 {
				one.Honor = new(h.Pods + honor.Self - honor.Minimum())
			}
			s.Domains = append(s.Domains, one)
		}
		for _, wedge := range wedges {
			if wedge.Constraint.Index == c.Index {
				s.Stuck = wedge.Domains
				for _, taint := range wedge.Taints {
					s.Taints = append(s.Taints, taint.ToString())
				}
			}
		}
		list = append(list, s)
	}
	return list
}

func measure(filtered *spread.Filtered, constraint int) Measure {
	count := &filtered.Counts[constraint]
	m := Measure{Minimum: count.Minimum(), Domains: len(count.Domains)}
	for _, verdict := range filtered.Verdicts {
		if verdict[constraint] == spread.Success {
			m.Allows++
		}
	}
	return m
}

// excluded groups the nodes that do not count by reason.
func excluded(cluster *spread.Cluster, count *spread.Count) (list []ExcludedNodes) {
	for i, node := range cluster.Nodes() {
		var why string
		switch n := &count.Nodes[i]; n.Why {
		case spread.Counted:
			continue
		case spread.MissingKey:
			why = "has no label " + n.Key
		case spread.AffinityMismatch:
			why = "is not what the pod requires"
		case spread.UntoleratedTaint:
			why = "has the taint " + n.Taint.ToString() + ", which the pod does not tolerate"
		}
		at := slices.IndexFunc(list, func(e ExcludedNodes) bool { return e.Why == why })
		if at < 0 {
			at = len(list)
			list = append(list, ExcludedNodes{Why: why})
		}
		list[at].Nodes = append(list[at].Nodes, node.Name)
	}
	return list
}

// addSpread adds the constraints that keep a pod from nodes without other obstacles: the domains that
// may have no more pods, and what would help.
func (p *Pod) addSpread(nodes []string) {
	var words []string
	for _, s := range p.Spread {
		var full []string
		for _, d := range s.Domains {
			if d.Exceeds {
				full = append(full, d.Value+" ("+cli.Counted(d.Pods, "pod")+")")
			}
		}
		if len(full) == 0 {
			continue
		}
		counts := s.Ignore
		if s.NodeTaintsPolicy == string(corev1.NodeInclusionPolicyHonor) {
			counts = s.Honor
		}
		than := fmt.Sprintf("ahead of the emptiest, which has %d", counts.Minimum)
		if counts.Domains < s.MinDomains {
			// The scheduler counts as if there were an empty one.
			than = fmt.Sprintf("while there are fewer domains (%d) than minDomains %d", counts.Domains, s.MinDomains)
		}
		text := fmt.Sprintf("one more in %s %s would be more than maxSkew %d %s", s.TopologyKey, cli.Few(full), s.MaxSkew, than)
		if len(s.Stuck) > 0 {
			text += fmt.Sprintf("; it can never go to %s, where taints keep it off (%s), and nodeTaintsPolicy: Honor would leave %s out", cli.Few(s.Stuck), cli.Few(s.Taints), cli.Plural(len(s.Stuck), "it", "them"))
		}
		words = append(words, text)
	}
	why := cmp.Or(strings.Join(words, ", "), "the nodes lack the labels that its constraints ask for")
	p.addf(CauseSpread, "topology spread keeps it from %s (%s): %s", cli.Counted(len(nodes), "node"), cli.Few(nodes), why)
}
