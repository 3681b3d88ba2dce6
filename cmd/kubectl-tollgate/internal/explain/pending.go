package explain

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/policy/spread"
)

// Standing is what keeps a pod from a node, or lets it go there.
type Standing string

// The standings, in the order in which they are looked for.
const (
	// NotSelected nodes are not those that the pod requires.
	NotSelected Standing = "NotSelected"
	Cordoned    Standing = "Cordoned"
	Tainted     Standing = "Tainted"
	// TooFull nodes are in a domain that has its share of the pods of a topology spread
	// constraint.
	TooFull Standing = "Spread"
	// Open nodes are those that nothing keeps the pod from that is known here. What only
	// the scheduler knows may.
	Open Standing = "Open"
)

// NodeSet is the nodes that are alike to a pod.
type NodeSet struct {
	Standing Standing `json:"standing"`
	// Taints are those that are not tolerated, and Near why tolerations of the same keys
	// do not meet them.
	Taints []string `json:"taints,omitempty"`
	Near   []string `json:"near,omitempty"`
	Nodes  []string `json:"nodes"`
}

// Scheduler is the last word of the scheduler about a pod.
type Scheduler struct {
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message"`
	Since   *metav1.Time `json:"since,omitempty"`
}

// pending tells of a pod that no node has taken. What keeps it from the nodes that are
// otherwise open to it comes first.
func (w *World) pending(p *Pod, pod *corev1.Pod, now time.Time) {
	said := saidOf(p, pod)
	p.Nodes = w.standings(pod)
	p.Spread = w.spreadOf(pod)
	open, full := size(p.Nodes, Open), size(p.Nodes, TooFull)
	causes := p.blockedClaims()
	if said.before != "" && len(w.Nodes) > 0 && (len(causes) == 0 || !said.ofClaims) {
		causes = append(causes, Cause{CauseScheduler, "the scheduler says: " + said.before})
	}
	if full > 0 && said.before == "" && (said.spread || !said.looked) {
		causes = append(causes, spreadCause(p))
	}
	if len(said.others) > 0 && open+full > 0 {
		causes = append(causes, said.rest(len(causes) > 0)...)
	}
	if open > 0 && len(causes) == 0 {
		causes = append(causes, waiting(p, pod, said, open, now))
	}
	causes = append(causes, w.nodeCauses(p, pod)...)
	if len(causes) == 0 {
		causes = append(causes, lastCause(p, pod, full))
	}
	p.conclude(Pending, "Pending", causes...)
}

// lastCause is what is left to be said of a pod of which nothing else is known.
func lastCause(p *Pod, pod *corev1.Pod, full int) Cause {
	switch {
	case full > 0:
		return spreadCause(p)
	case p.Scheduler != nil:
		return Cause{CauseScheduler, "the scheduler says: " + strings.TrimSuffix(p.Scheduler.Message, ".")}
	default:
		return Cause{CauseWaiting, "the scheduler " + schedulerOf(pod) + " has not said anything of it"}
	}
}

func schedulerOf(pod *corev1.Pod) string {
	return cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName)
}

// waiting says that nothing is known that keeps a pod from some nodes.
func waiting(p *Pod, pod *corev1.Pod, said *said, open int, now time.Time) Cause {
	names := p.Nodes[slices.IndexFunc(p.Nodes, func(s NodeSet) bool { return s.Standing == Open })].Nodes
	where := counted(open, "node") + " (" + some(names) + ")"
	if !said.looked {
		return Cause{CauseWaiting, "nothing keeps it from " + where + ", and the scheduler " + schedulerOf(pod) + " has not said anything of it since it was made " + ago(pod.CreationTimestamp.Time, now)}
	}
	return Cause{CauseWaiting, "nothing that is known here keeps it from " + where + " any more, and the scheduler has not looked again yet"}
}

// said is what the scheduler says of a pod.
type said struct {
	looked bool
	// before is why it did not look at the nodes one by one; empty if it did. OfClaims says
	// that it is about ResourceClaims.
	before   string
	ofClaims bool
	// others are reasons that are not known here, with how many nodes each is about, and
	// spread says that a topology spread constraint is among the reasons.
	others []string
	spread bool
}

// known are beginnings of reasons of the scheduler that are told here by themselves.
var known = []string{
	"node(s) had untolerated taint", "node(s) were unschedulable", "node(s) didn't match Pod's node affinity/selector",
	"node(s) didn't match pod topology spread constraints", "node(s) didn't match the requested node name",
}

// ofClaims are beginnings of reasons about ResourceClaims.
var ofClaims = []string{"cannot allocate all claims", "resourceclaim", "resource claim", "waiting for"}

var numbered = regexp.MustCompile(`^(\d+) (.+)$`)

// rest returns the reasons that are not known here. Those about claims are left out where
// more is known of them.
func (s *said) rest(explained bool) []Cause {
	others := s.others
	if explained {
		others = slices.DeleteFunc(slices.Clone(others), func(text string) bool {
			match := numbered.FindStringSubmatch(text)
			return match != nil && begins(match[2], ofClaims)
		})
	}
	if len(others) == 0 {
		return nil
	}
	return []Cause{{CauseScheduler, "the scheduler says: " + strings.Join(others, ", ")}}
}

// saidOf reads the condition by which the scheduler says why a pod is on no node.
func saidOf(p *Pod, pod *corev1.Pod) *said {
	s := &said{}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type != corev1.PodScheduled || c.Status != corev1.ConditionFalse || c.Reason == corev1.PodReasonSchedulingGated || c.Message == "" {
			continue
		}
		p.Scheduler = &Scheduler{Reason: c.Reason, Message: c.Message}
		if !c.LastTransitionTime.IsZero() {
			p.Scheduler.Since = &c.LastTransitionTime
		}
		s.read(c.Message)
	}
	return s
}

// read takes a message apart: 0/5 nodes are available: 1 Insufficient cpu, 4 node(s) had
// untolerated taint(s). preemption: ...
func (s *said) read(message string) {
	s.looked = true
	_, rest, found := strings.Cut(message, "nodes are available: ")
	if !found {
		s.before = message
		return
	}
	// What follows is why nothing can be done about it.
	rest, _, _ = strings.Cut(rest, ". ")
	rest = strings.TrimSuffix(rest, ".")
	if !numbered.MatchString(rest) {
		s.before, s.ofClaims = rest, begins(rest, ofClaims)
		return
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
		if !begins(match[2], known) {
			s.others = append(s.others, part)
		}
	}
}

func begins(text string, with []string) bool {
	return slices.ContainsFunc(with, func(beginning string) bool { return strings.HasPrefix(text, beginning) })
}

// standings groups the nodes by what keeps a pod from them, the same taints together: what
// keeps it off first, and then those with the most nodes.
func (w *World) standings(pod *corev1.Pod) []NodeSet {
	spreading := w.spreading(pod)
	if spreading == nil {
		return nil
	}
	all := spreadNodes(w.Nodes)
	filtered := spreading.Filter(spread.NewCluster(all, w.placedPods(pod)))
	sets := map[string]*NodeSet{}
	for i, node := range w.Nodes {
		s := w.standing(spreading, pod, node, &all[i])
		if s.Standing == Open && filtered.Verdicts[i].Code != spread.Success {
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

// standing says what keeps a pod from one node, spread apart.
func (w *World) standing(spreading *spread.Spreading, pod *corev1.Pod, node *corev1.Node, asked *spread.Node) NodeSet {
	if !spreading.Affine(asked) {
		return NodeSet{Standing: NotSelected}
	}
	set := NodeSet{Standing: Open}
	cordon := false
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if !repels(taint.Effect) {
			continue
		}
		m := meet(w.Rules, pod.Spec.Tolerations, taint)
		switch {
		case m.Tolerated:
		case taint.Key == corev1.TaintNodeUnschedulable:
			cordon = true
		default:
			set.Standing = Tainted
			set.Taints = append(set.Taints, m.Taint)
			set.Near = append(set.Near, m.Near...)
		}
	}
	slices.Sort(set.Taints)
	unschedulable := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if set.Standing == Open && (cordon || node.Spec.Unschedulable && !meet(w.Rules, pod.Spec.Tolerations, &unschedulable).Tolerated) {
		set.Standing = Cordoned
	}
	return set
}

// size returns how many nodes have a standing.
func size(sets []NodeSet, standing Standing) int {
	nodes := 0
	for i := range sets {
		if sets[i].Standing == standing {
			nodes += len(sets[i].Nodes)
		}
	}
	return nodes
}

// nodeCauses says what keeps a pod from nodes: selectors, taints and cordons.
func (w *World) nodeCauses(p *Pod, pod *corev1.Pod) []Cause {
	candidates := len(w.Nodes) - size(p.Nodes, NotSelected)
	requires := requirement(pod)
	switch {
	case w.Unread["nodes"]:
		return nil
	case len(w.Nodes) == 0:
		return []Cause{{CauseNoNodes, "the cluster has no node"}}
	case candidates == 0:
		if len(w.Nodes) == 1 {
			return []Cause{{CauseAffinity, "the only node does not match its " + requires}}
		}
		return []Cause{{CauseAffinity, "none of " + counted(len(w.Nodes), "node") + " matches its " + requires}}
	}
	const of = "node"
	those := ""
	if candidates < len(w.Nodes) {
		those = " that match its " + requires
		if candidates == 1 {
			those = " that matches its " + requires
		}
	}
	share := func(n int) string {
		switch {
		case n < candidates:
			return strconv.Itoa(n) + " of " + counted(candidates, of) + those
		case n == 1:
			return "the only " + of + those
		default:
			return "all " + counted(n, of) + those
		}
	}
	var causes []Cause
	if n := size(p.Nodes, Tainted); n > 0 {
		causes = append(causes, Cause{CauseTaint, share(n) + " " + has(n) + " taints that it does not tolerate: " + taintSets(p.Nodes)})
	}
	if n := size(p.Nodes, Cordoned); n > 0 {
		is := "are"
		if n == 1 {
			is = "is"
		}
		causes = append(causes, Cause{CauseCordon, share(n) + " " + is + " cordoned (" + some(namesOf(p.Nodes, Cordoned)) + ")"})
	}
	return causes
}

func has(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

func namesOf(sets []NodeSet, standing Standing) []string {
	var names []string
	for i := range sets {
		if sets[i].Standing == standing {
			names = append(names, sets[i].Nodes...)
		}
	}
	return names
}

// taintSets names sets of taints with the nodes that have them.
func taintSets(sets []NodeSet) string {
	const most = 3
	var words []string
	left := 0
	for i := range sets {
		s := &sets[i]
		switch {
		case s.Standing != Tainted:
		case len(words) == most:
			left++
		default:
			text := strings.Join(s.Taints, " and ") + " (" + whichNodes(s.Nodes)
			if near := nearWords(s.Near); near != "" {
				text += "; " + near
			}
			words = append(words, text+")")
		}
	}
	text := strings.Join(words, ", ")
	if left > 0 {
		text += " and " + counted(left, "other set") + " of taints"
	}
	return text
}

func whichNodes(names []string) string {
	if len(names) == 1 {
		return "node " + names[0]
	}
	return counted(len(names), "node")
}

// requirement says by what a pod requires nodes.
func requirement(pod *corev1.Pod) string {
	var words []string
	if len(pod.Spec.NodeSelector) > 0 {
		words = append(words, "node selector "+metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: pod.Spec.NodeSelector}))
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		words = append(words, "required node affinity")
	}
	return strings.Join(words, " and ")
}
