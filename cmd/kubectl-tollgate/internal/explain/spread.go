package explain

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/policy/spread"
)

// Spread is a topology spread constraint of a pod, counted as the constraint says and, side
// by side, with either nodeTaintsPolicy.
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
	// Honor and Ignore are what the constraint measures with nodeTaintsPolicy Honor and
	// Ignore.
	Honor  Measure `json:"honor"`
	Ignore Measure `json:"ignore"`
	// Excluded says of nodes that do not count why.
	Excluded []ExcludedNodes `json:"excluded,omitempty"`
	// Stuck are the domains that hold the minimum down for good: the pod cannot go to any
	// of their nodes, because of Taints. With nodeTaintsPolicy Honor they would not count.
	Stuck  []string `json:"stuck,omitempty"`
	Taints []string `json:"taints,omitempty"`
}

// Measure is what a constraint measures.
type Measure struct {
	// Minimum is what the skew is measured from.
	Minimum int `json:"minimum"`
	// Domains is how many count.
	Domains int `json:"domains"`
	// Allows is on how many nodes the skew would not exceed maxSkew, whatever else keeps
	// the pod from them.
	Allows int `json:"allows"`
}

// Domain is the nodes with the same value of the topology key.
type Domain struct {
	Value string `json:"value"`
	// Counts is false where no node of it counts.
	Counts bool `json:"counts"`
	Nodes  int  `json:"nodes"`
	Pods   int  `json:"pods"`
	// Honor and Ignore are the skew if the pod went there, with either nodeTaintsPolicy;
	// absent where it does not count.
	Honor  *int `json:"honor,omitempty"`
	Ignore *int `json:"ignore,omitempty"`
	// Exceeds is true when the skew as the constraint says is more than maxSkew.
	Exceeds bool `json:"exceeds,omitempty"`
}

// ExcludedNodes are nodes that a constraint does not count for the same reason.
type ExcludedNodes struct {
	Why   string   `json:"why"`
	Nodes []string `json:"nodes"`
}

func spreadNodes(nodes []*corev1.Node) []spread.Node {
	all := make([]spread.Node, len(nodes))
	for i, node := range nodes {
		all[i] = spread.NodeOf(node)
	}
	return all
}

// placedPods returns the pods that constraints of a pod may count.
func (w *World) placedPods(pod *corev1.Pod) []spread.Placed {
	var placed []spread.Placed
	for _, other := range w.Pods {
		if p, ok := spread.PlacedOf(other); ok && other.UID != pod.UID {
			placed = append(placed, p)
		}
	}
	return placed
}

// spreadOf counts the constraints of a pod with DoNotSchedule.
func (w *World) spreadOf(pod *corev1.Pod) []Spread {
	spreading := w.spreading(pod)
	if spreading == nil || len(spreading.Constraints()) == 0 {
		return nil
	}
	cluster := spread.NewCluster(spreadNodes(w.Nodes), w.placedPods(pod))
	own, both := spreading.Filter(cluster), spreading.SideBySide(cluster)
	wedges := spreading.Wedges(cluster.Nodes())
	var list []Spread
	for i := range own.Counts {
		s := newSpread(&own.Counts[i])
		s.Honor, s.Ignore = measure(both.Honor, i), measure(both.Ignore, i)
		s.Domains = domains(&own.Counts[i], &both.Honor.Counts[i], &both.Ignore.Counts[i])
		s.Excluded = excluded(cluster, &own.Counts[i])
		for j := range wedges {
			if wedges[j].Constraint.Index == own.Counts[i].Constraint.Index {
				s.Stuck = wedges[j].Domains
				for k := range wedges[j].Taints {
					s.Taints = append(s.Taints, taintWords(&wedges[j].Taints[k]))
				}
			}
		}
		list = append(list, s)
	}
	return list
}

func newSpread(count *spread.Count) Spread {
	c := &count.Constraint
	return Spread{
		TopologyKey: c.TopologyKey, WhenUnsatisfiable: string(c.WhenUnsatisfiable), MaxSkew: c.MaxSkew, MinDomains: c.MinDomains,
		NodeTaintsPolicy: string(c.NodeTaintsPolicy), NodeAffinity: string(c.NodeAffinityPolicy), Self: count.Self,
	}
}

func measure(filtered *spread.Filtered, constraint int) Measure {
	count := &filtered.Counts[constraint]
	m := Measure{Minimum: count.Minimum(), Domains: len(count.Domains)}
	for i := range filtered.Verdicts {
		if skew := &filtered.Verdicts[i].Skews[constraint]; !skew.Missing && !skew.Exceeds {
			m.Allows++
		}
	}
	return m
}

// domains returns every domain that counts with either policy.
func domains(own, honor, ignore *spread.Count) []Domain {
	var list []Domain
	for _, d := range ignore.Domains {
		counted := own.Domain(d.Value)
		one := Domain{Value: d.Value, Counts: counted.Nodes > 0, Nodes: counted.Nodes, Pods: counted.Pods}
		one.Ignore = new(d.Pods + ignore.Self - ignore.Minimum())
		if h := honor.Domain(d.Value); h.Nodes > 0 {
			one.Honor = new(h.Pods + honor.Self - honor.Minimum())
		}
		one.Exceeds = counted.Pods+own.Self-own.Minimum() > own.Constraint.MaxSkew
		list = append(list, one)
	}
	return list
}

// excluded groups the nodes that do not count by why that is.
func excluded(cluster *spread.Cluster, count *spread.Count) []ExcludedNodes {
	var list []ExcludedNodes
	at := map[string]int{}
	for i, node := range cluster.Nodes() {
		why := exclusion(&count.Nodes[i])
		if why == "" {
			continue
		}
		if _, found := at[why]; !found {
			at[why] = len(list)
			list = append(list, ExcludedNodes{Why: why})
		}
		list[at[why]].Nodes = append(list[at[why]].Nodes, node.Name)
	}
	return list
}

func exclusion(n *spread.NodeCount) string {
	switch n.Why {
	case spread.Counted:
		return ""
	case spread.MissingKey:
		return "has no label " + n.Key
	case spread.AffinityMismatch:
		return "is not what the pod requires"
	case spread.UntoleratedTaint:
		return "has the taint " + taintWords(n.Taint) + ", which the pod does not tolerate"
	}
	return string(n.Why)
}

// spreadCause says which constraint keeps a pod from nodes that nothing else keeps it from,
// and what would help.
func spreadCause(p *Pod) Cause {
	var words []string
	for i := range p.Spread {
		if text := p.Spread[i].exceeding(); text != "" {
			words = append(words, text)
		}
	}
	if len(words) == 0 {
		words = append(words, "the nodes lack the labels that its constraints ask for")
	}
	return Cause{CauseSpread, "topology spread keeps it from " + counted(size(p.Nodes, TooFull), "node") + " (" + some(namesOf(p.Nodes, TooFull)) + "): " + strings.Join(words, ", ")}
}

// exceeding says which domains have their share; empty if none has.
func (s *Spread) exceeding() string {
	var full []string
	for _, d := range s.Domains {
		if d.Exceeds {
			full = append(full, d.Value+" ("+counted(d.Pods, "pod")+")")
		}
	}
	if len(full) == 0 {
		return ""
	}
	counts := s.Ignore
	if s.NodeTaintsPolicy == string(corev1.NodeInclusionPolicyHonor) {
		counts = s.Honor
	}
	than := "ahead of the emptiest, which has " + strconv.Itoa(counts.Minimum)
	if counts.Domains < s.MinDomains {
		// The scheduler counts as if there were an empty one.
		than = fmt.Sprintf("while there are fewer domains (%d) than minDomains %d", counts.Domains, s.MinDomains)
	}
	text := fmt.Sprintf("one more in %s %s would be more than maxSkew %d %s", s.TopologyKey, some(full), s.MaxSkew, than)
	if len(s.Stuck) > 0 {
		text += fmt.Sprintf("; it can never go to %s, where taints keep it off (%s), and nodeTaintsPolicy: Honor would leave %s out", some(s.Stuck), some(s.Taints), itOrThem(len(s.Stuck)))
	}
	return text
}
