package explain

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy/spread"
)

// Standing is the obstacle between a pod and a node.
type Standing string

// The obstacles, in the order in which they are looked for.
const (
	// NotSelected nodes do not match the node selector or the required affinity.
	NotSelected Standing = "NotSelected"
	Cordoned    Standing = "Cordoned"
	Tainted     Standing = "Tainted"
	// TooFull nodes are in a domain that a topology spread constraint excludes.
	TooFull Standing = "Spread"
	// Open nodes have no obstacle that is known here. The scheduler may know others.
	Open Standing = "Open"
)

// NodeSet has the nodes with the same obstacle.
type NodeSet struct {
	Standing Standing `json:"standing"`
	// Taints are the taints that are not tolerated, and Near describes why tolerations of the same
	// keys do not match.
	Taints []string `json:"taints,omitempty"`
	Near   []string `json:"near,omitempty"`
	Nodes  []string `json:"nodes"`
}

// Scheduler is the last message of the scheduler about a pod.
type Scheduler struct {
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message"`
	Since   *metav1.Time `json:"since,omitempty"`
}

// pending explains a pod without a node. The obstacles on nodes that are otherwise open come
// first.
func (w *World) pending(p *Pod, pod *corev1.Pod) {
	reasons := schedulerReasons(p, pod)
	if spreading, err := spread.Read(pod, spread.Options{ComparisonOperators: w.Rules.ComparisonOperators}); err == nil { // Invalid constraints keep no node.
		nodes, placed := make([]spread.Node, len(w.Nodes)), []spread.Placed{}
		for i, node := range w.Nodes {
			nodes[i] = spread.NodeOf(node)
		}
		for _, other := range w.Pods {
			if one, ok := spread.PlacedOf(other); ok && other.UID != pod.UID {
				placed = append(placed, one)
			}
		}
		cluster := spread.NewCluster(nodes, placed)
		own := spreading.Filter(cluster)
		p.Nodes = w.standings(pod, spreading, nodes, own.Verdicts)
		p.Spread = spreadOf(spreading, cluster, own)
	}
	nodes := map[Standing][]string{}
	for _, set := range p.Nodes {
		nodes[set.Standing] = append(nodes[set.Standing], set.Nodes...)
	}
	open, full := nodes[Open], nodes[TooFull]
	scheduler := cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName)
	w.obstacles(p, &reasons, len(open), full)
	if len(open) > 0 && len(p.Causes) == 0 {
		where := fmt.Sprintf("keeps it from %s (%s)", cli.Counted(len(open), "node"), cli.Few(open))
		if p.Scheduler == nil {
			p.addf(CauseWaiting, "nothing %s, and the scheduler %s has not said anything of it since it was made %s", where, scheduler, ago(pod.CreationTimestamp.Time, w.Now))
		} else {
			p.addf(CauseWaiting, "nothing that is known here %s any more, and the scheduler has not looked again yet", where)
		}
	}
	w.nodeCauses(p, pod, nodes)
	switch {
	case len(p.Causes) > 0:
	case len(full) > 0:
		p.addSpread(full)
	case p.Scheduler != nil:
		p.addf(CauseScheduler, "the scheduler says: %s", strings.TrimSuffix(p.Scheduler.Message, "."))
	default:
		p.addf(CauseWaiting, "the scheduler %s has not said anything of it", scheduler)
	}
	p.conclude(Pending, "Pending")
}

// obstacles adds what keeps a pod from nodes that are open, or full by topology spread: its claims,
// the reasons that only the scheduler knows, and topology spread.
func (w *World) obstacles(p *Pod, reasons *reasons, open int, full []string) {
	for _, claim := range p.Claims {
		if claim.blocked != "" {
			p.addf(CauseClaim, "%s", claim.blocked)
		}
	}
	if reasons.before != "" && len(w.Nodes) > 0 && (len(p.Causes) == 0 || !reasons.ofClaims) {
		p.addf(CauseScheduler, "the scheduler says: %s", reasons.before)
	}
	if len(full) > 0 && (reasons.spread || p.Scheduler == nil) {
		p.addSpread(full)
	}
	others := reasons.others
	if len(p.Causes) > 0 { // They say more about claims.
		others = slices.DeleteFunc(others, claimReasons.MatchString)
	}
	if len(others) > 0 && open+len(full) > 0 {
		p.addf(CauseScheduler, "the scheduler says: %s", cli.Joined(others))
	}
}

// reasons are the reasons of the scheduler in its last message.
type reasons struct {
	// before is the reason for which the scheduler did not evaluate nodes; empty if it did.
	// OfClaims is true if it is about ResourceClaims.
	before   string
	ofClaims bool
	// others are reasons that only the scheduler knows, with their number of nodes. Spread is true
	// if a topology spread constraint is among the reasons.
	others []string
	spread bool
}

var (
	// numbered is a reason with its number of nodes.
	numbered = regexp.MustCompile(`^\d+ .+$`)
	// nodeReasons are the reasons of the scheduler that are computed here as well.
	nodeReasons = regexp.MustCompile(`^\d+ node\(s\) (had untolerated taint|were unschedulable|` +
		`didn't match (Pod's node affinity/selector|pod topology spread constraints|the requested node name))`)
	// claimReasons are the reasons about ResourceClaims.
	claimReasons = regexp.MustCompile(`^(\d+ )?(cannot allocate all claims|resourceclaim|resource claim|waiting for)`)
)

// schedulerReasons sets the last message of the scheduler, and returns its reasons. A message is
// 0/5 nodes are available: 1 Insufficient cpu, 4 node(s) had untolerated taint(s). preemption: ...
func schedulerReasons(p *Pod, pod *corev1.Pod) (s reasons) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason != corev1.PodReasonSchedulingGated && c.Message != "" {
			p.Scheduler = &Scheduler{Reason: c.Reason, Message: c.Message, Since: cli.TimeOrNone(c.LastTransitionTime.Time)}
		}
	}
	if p.Scheduler == nil {
		return s
	}
	_, rest, found := strings.Cut(p.Scheduler.Message, "nodes are available: ")
	if !found {
		s.before = p.Scheduler.Message
		return s
	}
	rest, _, _ = strings.Cut(rest, ". ") // Preemption follows.
	rest = strings.TrimSuffix(rest, ".")
	if !numbered.MatchString(rest) {
		s.before, s.ofClaims = rest, claimReasons.MatchString(rest)
		return s
	}
	s.spread = strings.Contains(rest, "topology spread constraints")
	for part := range strings.SplitSeq(rest, ", ") {
		switch {
		case nodeReasons.MatchString(part):
		case numbered.MatchString(part):
			s.others = append(s.others, part)
		case len(s.others) > 0: // a reason with a comma in it
			s.others[len(s.others)-1] += ", " + part
		}
	}
	return s
}

// standings groups the nodes by obstacle and taints, in the order of causes, and then those with
// the most nodes.
func (w *World) standings(pod *corev1.Pod, spreading *spread.Spreading, all []spread.Node, verdicts []spread.Verdict) []NodeSet {
	sets := map[string]NodeSet{}
	for i, node := range w.Nodes {
		s := NodeSet{Standing: NotSelected}
		if spreading.Affine(&all[i]) {
			s = w.standing(pod, node)
		}
		if s.Standing == Open && verdicts[i].Code() != spread.Success {
			s.Standing = TooFull
		}
		key := string(s.Standing) + " " + strings.Join(s.Taints, " ")
		if other, found := sets[key]; found {
			s = other
		}
		s.Nodes = append(s.Nodes, node.Name)
		sets[key] = s
	}
	for _, s := range sets {
		slices.Sort(s.Nodes)
	}
	order := []Standing{Open, TooFull, Tainted, Cordoned, NotSelected}
	return slices.SortedFunc(maps.Values(sets), func(a, b NodeSet) int {
		return cmp.Or(slices.Index(order, a.Standing)-slices.Index(order, b.Standing), len(b.Nodes)-len(a.Nodes), cmp.Compare(a.Nodes[0], b.Nodes[0]))
	})
}

// standing returns the obstacle between a pod and a node that it selects, without topology spread.
func (w *World) standing(pod *corev1.Pod, node *corev1.Node) NodeSet {
	set := NodeSet{Standing: Open}
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		taints = append(slices.Clone(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	for _, taint := range taints {
		m := w.match(pod.Spec.Tolerations, &taint)
		switch {
		case !m.repels():
		case taint.Key != corev1.TaintNodeUnschedulable:
			set.Standing = Tainted
			set.Taints = append(set.Taints, m.Taint)
			set.Near = append(set.Near, m.Near...)
		case set.Standing == Open:
			set.Standing = Cordoned
		}
	}
	slices.Sort(set.Taints)
	return set
}

// nodeCauses adds the selectors, taints and cordons that keep a pod from nodes, which are given by
// their obstacle.
func (w *World) nodeCauses(p *Pod, pod *corev1.Pod, nodes map[Standing][]string) {
	required := ""
	if len(pod.Spec.NodeSelector) > 0 {
		required = "node selector " + labels.FormatLabels(pod.Spec.NodeSelector)
	}
	if spread.RequiredNodes(pod.Spec.Affinity) != nil {
		required += " and required node affinity"
	}
	required = strings.TrimPrefix(required, " and ")
	all := len(w.Nodes)
	candidates := all - len(nodes[NotSelected])
	switch {
	case w.Unread("nodes"):
		return
	case all == 0:
		p.addf(CauseNoNodes, "the cluster has no node")
	case candidates == 0 && all == 1:
		p.addf(CauseAffinity, "the only node does not match its %s", required)
	case candidates == 0:
		p.addf(CauseAffinity, "none of %d nodes matches its %s", all, required)
	}
	those := ""
	if candidates < all {
		those = " that " + cli.Plural(candidates, "matches", "match") + " its " + required
	}
	share := func(n int, one, many string) string {
		of := "all " + cli.Counted(n, "node")
		switch {
		case n < candidates:
			of = fmt.Sprintf("%d of %s", n, cli.Counted(candidates, "node"))
		case n == 1:
			of = "the only node"
		}
		return of + those + " " + cli.Plural(n, one, many)
	}
	if n := len(nodes[Tainted]); n > 0 {
		p.addf(CauseTaint, "%s taints that it does not tolerate: %s", share(n, "has", "have"), taintSets(p.Nodes))
	}
	if n := len(nodes[Cordoned]); n > 0 {
		p.addf(CauseCordon, "%s cordoned (%s)", share(n, "is", "are"), cli.Few(nodes[Cordoned]))
	}
}

// taintSets returns sets of taints with their nodes.
func taintSets(sets []NodeSet) string {
	const most = 3
	var words []string
	for _, s := range sets {
		if s.Standing != Tainted {
			continue
		}
		where := cli.Counted(len(s.Nodes), "node")
		if len(s.Nodes) == 1 {
			where = "node " + s.Nodes[0]
		}
		if len(s.Near) > 0 {
			where += "; " + cli.Joined(s.Near)
		}
		words = append(words, strings.Join(s.Taints, " and ")+" ("+where+")")
	}
	text := strings.Join(words[:min(len(words), most)], ", ")
	if left := len(words) - most; left > 0 {
		text += " and " + cli.Counted(left, "other set") + " of taints"
	}
	return text
}
