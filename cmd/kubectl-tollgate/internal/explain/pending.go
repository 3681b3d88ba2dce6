package explain

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	open, full := nodesWith(p.Nodes, Open), nodesWith(p.Nodes, TooFull)
	scheduler := cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName)
	causes := w.obstacles(p, &reasons, len(open), full)
	if len(open) > 0 && len(causes) == 0 {
		where := cli.Counted(len(open), "node") + " (" + cli.Few(open) + ")"
		text := "nothing that is known here keeps it from " + where + " any more, and the scheduler has not looked again yet"
		if p.Scheduler == nil {
			text = "nothing keeps it from " + where + ", and the scheduler " + scheduler + " has not said anything of it since it was made " + ago(pod.CreationTimestamp.Time, w.Now)
		}
		causes = append(causes, Cause{CauseWaiting, text})
	}
	causes = append(causes, w.nodeCauses(p, pod)...)
	switch {
	case len(causes) > 0:
	case len(full) > 0:
		causes = append(causes, spreadCause(p, full))
	case p.Scheduler != nil:
		causes = append(causes, Cause{CauseScheduler, "the scheduler says: " + strings.TrimSuffix(p.Scheduler.Message, ".")})
	default:
		causes = append(causes, Cause{CauseWaiting, "the scheduler " + scheduler + " has not said anything of it"})
	}
	p.conclude(Pending, "Pending", causes...)
}

// obstacles returns what keeps a pod from nodes that are open, or full by topology spread: its
// claims, the reasons that only the scheduler knows, and topology spread.
func (w *World) obstacles(p *Pod, reasons *reasons, open int, full []string) []Cause {
	var causes []Cause
	for _, claim := range p.Claims {
		if claim.blocked != "" {
			causes = append(causes, Cause{CauseClaim, claim.blocked})
		}
	}
	if reasons.before != "" && len(w.Nodes) > 0 && (len(causes) == 0 || !reasons.ofClaims) {
		causes = append(causes, Cause{CauseScheduler, "the scheduler says: " + reasons.before})
	}
	if len(full) > 0 && reasons.before == "" && (reasons.spread || p.Scheduler == nil) {
		causes = append(causes, spreadCause(p, full))
	}
	others := reasons.others
	if len(causes) > 0 { // They say more about claims.
		others = slices.DeleteFunc(others, func(text string) bool {
			match := numbered.FindStringSubmatch(text)
			return match != nil && begins(match[2], claimReasons)
		})
	}
	if len(others) > 0 && open+len(full) > 0 {
		causes = append(causes, Cause{CauseScheduler, "the scheduler says: " + strings.Join(others, ", ")})
	}
	return causes
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
	// nodeReasons begin the reasons of the scheduler that are computed here as well.
	nodeReasons = []string{
		"node(s) had untolerated taint", "node(s) were unschedulable", "node(s) didn't match Pod's node affinity/selector",
		"node(s) didn't match pod topology spread constraints", "node(s) didn't match the requested node name",
	}
	// claimReasons begin the reasons about ResourceClaims.
	claimReasons = []string{"cannot allocate all claims", "resourceclaim", "resource claim", "waiting for"}

	numbered = regexp.MustCompile(`^(\d+) (.+)$`)
)

func begins(text string, with []string) bool {
	return slices.ContainsFunc(with, func(beginning string) bool { return strings.HasPrefix(text, beginning) })
}

// schedulerReasons sets the last message of the scheduler, and returns its reasons. A message is
// 0/5 nodes are available: 1 Insufficient cpu, 4 node(s) had untolerated taint(s). preemption: ...
func schedulerReasons(p *Pod, pod *corev1.Pod) reasons {
	var s reasons
	at := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason != corev1.PodReasonSchedulingGated && c.Message != ""
	})
	if at < 0 {
		return s
	}
	c := &pod.Status.Conditions[at]
	p.Scheduler = &Scheduler{Reason: c.Reason, Message: c.Message}
	if !c.LastTransitionTime.IsZero() {
		p.Scheduler.Since = &c.LastTransitionTime
	}
	_, rest, found := strings.Cut(c.Message, "nodes are available: ")
	if !found {
		s.before = c.Message
		return s
	}
	rest, _, _ = strings.Cut(rest, ". ") // Preemption follows.
	rest = strings.TrimSuffix(rest, ".")
	if !numbered.MatchString(rest) {
		s.before, s.ofClaims = rest, begins(rest, claimReasons)
		return s
	}
	for part := range strings.SplitSeq(rest, ", ") {
		match := numbered.FindStringSubmatch(part)
		if match == nil {
			if len(s.others) > 0 { // a reason with a comma in it
				s.others[len(s.others)-1] += ", " + part
			}
			continue
		}
		s.spread = s.spread || strings.Contains(match[2], "topology spread constraints")
		if !begins(match[2], nodeReasons) {
			s.others = append(s.others, part)
		}
	}
	return s
}

// standings groups the nodes by obstacle and taints, in the order of causes, and then those with
// the most nodes.
func (w *World) standings(pod *corev1.Pod, spreading *spread.Spreading, all []spread.Node, verdicts []spread.Verdict) []NodeSet {
	sets := map[string]*NodeSet{}
	for i, node := range w.Nodes {
		s := w.standing(spreading, pod, node, &all[i])
		if s.Standing == Open && verdicts[i].Code() != spread.Success {
			s.Standing = TooFull
		}
		key := string(s.Standing) + " " + strings.Join(s.Taints, " ")
		if sets[key] == nil {
			sets[key] = &s
		}
		sets[key].Nodes = append(sets[key].Nodes, node.Name)
	}
	list := make([]NodeSet, 0, len(sets))
	for _, s := range sets {
		slices.Sort(s.Nodes)
		list = append(list, *s)
	}
	order := []Standing{Open, TooFull, Tainted, Cordoned, NotSelected}
	slices.SortFunc(list, func(a, b NodeSet) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Standing), slices.Index(order, b.Standing)),
			cmp.Compare(len(b.Nodes), len(a.Nodes)), cmp.Compare(a.Nodes[0], b.Nodes[0]))
	})
	return list
}

// standing returns the obstacle between a pod and one node, without topology spread.
func (w *World) standing(spreading *spread.Spreading, pod *corev1.Pod, node *corev1.Node, as *spread.Node) NodeSet {
	if !spreading.Affine(as) {
		return NodeSet{Standing: NotSelected}
	}
	set := NodeSet{Standing: Open}
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		taints = append(slices.Clone(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	for _, taint := range taints {
		m := match(w.Rules, pod.Spec.Tolerations, &taint)
		switch {
		case m.Tolerated || !repels(taint.Effect):
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

// nodesWith returns the nodes with an obstacle.
func nodesWith(sets []NodeSet, standing Standing) []string {
	var names []string
	for _, s := range sets {
		if s.Standing == standing {
			names = append(names, s.Nodes...)
		}
	}
	return names
}

// nodeCauses returns the selectors, taints and cordons that keep a pod from nodes.
func (w *World) nodeCauses(p *Pod, pod *corev1.Pod) []Cause {
	var requirements []string
	if len(pod.Spec.NodeSelector) > 0 {
		requirements = append(requirements, "node selector "+metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: pod.Spec.NodeSelector}))
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		requirements = append(requirements, "required node affinity")
	}
	required := strings.Join(requirements, " and ")
	all := len(w.Nodes)
	candidates := all - len(nodesWith(p.Nodes, NotSelected))
	switch {
	case w.Unread("nodes"):
		return nil
	case all == 0:
		return []Cause{{CauseNoNodes, "the cluster has no node"}}
	case candidates == 0 && all == 1:
		return []Cause{{CauseAffinity, "the only node does not match its " + required}}
	case candidates == 0:
		return []Cause{{CauseAffinity, "none of " + cli.Counted(all, "node") + " matches its " + required}}
	}
	those := ""
	if candidates < all {
		those = " that " + cli.Plural(candidates, "matches", "match") + " its " + required
	}
	share := func(n int, one, many string) string {
		switch {
		case n < candidates:
			return strconv.Itoa(n) + " of " + cli.Counted(candidates, "node") + those + " " + cli.Plural(n, one, many)
		case n == 1:
			return "the only node" + those + " " + one
		default:
			return "all " + cli.Counted(n, "node") + those + " " + many
		}
	}
	var causes []Cause
	if tainted := nodesWith(p.Nodes, Tainted); len(tainted) > 0 {
		causes = append(causes, Cause{CauseTaint, share(len(tainted), "has", "have") + " taints that it does not tolerate: " + taintSets(p.Nodes)})
	}
	if cordoned := nodesWith(p.Nodes, Cordoned); len(cordoned) > 0 {
		causes = append(causes, Cause{CauseCordon, share(len(cordoned), "is", "are") + " cordoned (" + cli.Few(cordoned) + ")"})
	}
	return causes
}

// taintSets returns sets of taints with their nodes.
func taintSets(sets []NodeSet) string {
	const most = 3
	var words []string
	left := 0
	for _, s := range sets {
		switch {
		case s.Standing != Tainted:
		case len(words) == most:
			left++
		default:
			nodes := cli.Counted(len(s.Nodes), "node")
			if len(s.Nodes) == 1 {
				nodes = "node " + s.Nodes[0]
			}
			text := strings.Join(s.Taints, " and ") + " (" + nodes
			if len(s.Near) > 0 {
				text += "; " + strings.Join(s.Near, ", ")
			}
			words = append(words, text+")")
		}
	}
	text := strings.Join(words, ", ")
	if left > 0 {
		text += " and " + cli.Counted(left, "other set") + " of taints"
	}
	return text
}
