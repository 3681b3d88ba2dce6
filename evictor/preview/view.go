package preview

import (
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

var (
	// ErrUnread is why nothing can be foretold right after the start: a number would be
	// too small.
	ErrUnread = errors.New("not all pods and what taints them have been read yet")
	// ErrUnfollowed is why nothing can ever be foretold where such taints are not
	// followed.
	ErrUnfollowed = errors.New("taints of that kind are not followed")
)

// Options are what a View looks at. Of the functions, nil stands for never.
type Options struct {
	Tracker *tracker.Tracker
	// Rules are those of the evictor.
	Rules decide.Rules
	// PodsKnown, NodesKnown, DevicesKnown and BudgetsKnown report whether the tracker
	// knows all of them that there were at the start. Where the taints of nodes or of
	// devices are not followed, theirs is nil. Without the budgets a forecast is made all
	// the same, and says so.
	PodsKnown, NodesKnown, DevicesKnown, BudgetsKnown func() bool
	// Policies returns the EvictionPolicies that are in force, nil for none, as does a
	// nil Policies.
	Policies func() *eviction.Set
	// NamespaceLabels returns the labels of a namespace, and false while they are not
	// known. A pod about which they would decide counts as one that leaves.
	NamespaceLabels func(name string) (labels.Labels, bool)
}

func (o *Options) treating() treating {
	return treating{policies: o.Policies, namespaceLabels: o.NamespaceLabels}
}

// View foretells what writes would do, from what the tracker knows.
type View struct{ options Options }

// NewView returns a view.
func NewView(options Options) *View {
	for _, known := range []*func() bool{&options.PodsKnown, &options.BudgetsKnown} {
		if *known == nil {
			*known = func() bool { return false }
		}
	}
	return &View{options: options}
}

// read returns why nothing can be foretold yet of what taints, nil if it can. Known
// reports whether all that carries such taints has been read.
func (v *View) read(known func() bool) error {
	switch {
	case known == nil:
		return ErrUnfollowed
	case !v.options.PodsKnown() || !known():
		return ErrUnread
	default:
		return nil
	}
}

// Rules returns the rules by which the view decides.
func (v *View) Rules() decide.Rules { return v.options.Rules }

// Live returns how many pods of the cluster are on nodes and neither over nor on their
// way out.
func (v *View) Live() int { return v.options.Tracker.Live() }

// PoolOfOthers reports whether a slice is written into a pool of another node, as far as
// slices are known.
func (v *View) PoolOfOthers(slice *tracker.Slice) bool { return v.options.Tracker.PoolOfOthers(slice) }

// Node returns what would change for pods if a node that stands as old were written.
// The error is ErrUnread or ErrUnfollowed.
func (v *View) Node(old, node tracker.Node, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.options.NodesKnown); err != nil {
		return nil, err
	}
	return v.options.Tracker.IfNodeWas(old, node, now), nil
}

// Rule does the same for a DeviceTaintRule that stands as old, nil for none.
func (v *View) Rule(old *tracker.Rule, rule tracker.Rule, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.options.DevicesKnown); err != nil {
		return nil, err
	}
	return v.options.Tracker.IfRuleWas(old, rule, now), nil
}

// Patch returns what would change for pods if a ResourceSlicePatch had other taints or
// devices. The error is that of Node.
func (v *View) Patch(p tracker.PatchedTaints, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.options.DevicesKnown); err != nil {
		return nil, err
	}
	return v.options.Tracker.IfPatch(p, now), nil
}

// Slice does the same as Rule for a ResourceSlice that stands as old.
func (v *View) Slice(old, slice tracker.Slice, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.options.DevicesKnown); err != nil {
		return nil, err
	}
	return v.options.Tracker.IfSliceWas(old, slice, now), nil
}

// Nodes returns what would change for pods if the nodes were given taints: those with
// effect NoExecute of a key that the node does not have with that effect. Give gets
// the labels of each node.
func (v *View) Nodes(give func(labels map[string]string) []corev1.Taint, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.options.NodesKnown); err != nil {
		return nil, err
	}
	var changes [][]tracker.Change
	for _, node := range v.options.Tracker.Nodes() {
		given := give(node.Labels.Map())
		old := tracker.Node{Name: node.Name}
		for i := range node.Taints {
			old.Taints = append(old.Taints, node.Taints[i].Native())
		}
		written := old
		written.Taints = append(written.Taints[:len(old.Taints):len(old.Taints)], lacking(given, old.Taints)...)
		if len(written.Taints) > len(old.Taints) {
			changes = append(changes, v.options.Tracker.IfNodeWas(old, written, now))
		}
	}
	return slices.Concat(changes...), nil
}

// lacking returns the NoExecute taints that are given and do not stand there.
func lacking(given, standing []corev1.Taint) []corev1.Taint {
	var lacked []corev1.Taint
	for i := range given {
		stands := false
		for j := range standing {
			stands = stands || standing[j].MatchTaint(&given[i])
		}
		if !stands && given[i].Effect == corev1.TaintEffectNoExecute {
			lacked = append(lacked, given[i])
		}
	}
	return lacked
}

// Forecast returns what changes mean for pods.
func (v *View) Forecast(now time.Time, changes []tracker.Change) Forecast {
	t := foreteller{
		rules: v.options.Rules, now: now, treatments: v.options.treating().now(), live: v.options.Tracker.Live(),
		guarded: func(*tracker.Pod) bool { return false },
	}
	known := v.options.BudgetsKnown()
	if known {
		t.guarded = newGuards(v.options.Tracker).guard
	}
	f := t.of(changes)
	f.BudgetsUnknown = !known
	return f
}

// Standing returns the NoExecute taint with that key that a node or a rule has, or that
// the rule has which appeared last of those that are written out for a patch: by then the
// patch has come, or reaches further.
func (v *View) Standing(source tracker.Source, key string) (tracker.Taint, bool) {
	switch source.Kind {
	case tracker.SourceNode:
		_, taints := v.options.Tracker.Taints(source.Name)
		for i := range taints {
			if taints[i].Key == key {
				return taints[i], true
			}
		}
	case tracker.SourceRule:
		taint, ok := v.options.Tracker.RuleTaint(source.Name)
		return taint, ok && taint.Key == key && taint.Effect == corev1.TaintEffectNoExecute
	case tracker.SourcePatch:
		_, last, ok := v.options.Tracker.PatchTaint(source.Name, key)
		return last, ok
	case tracker.SourceSlice:
	}
	return tracker.Taint{}, false
}

// FirstStanding is Standing, but that it returns for a patch the taint of the rule that
// appeared first: what was let go for that one is let go for those that follow.
func (v *View) FirstStanding(source tracker.Source, key string) (tracker.Taint, bool) {
	if source.Kind != tracker.SourcePatch {
		return v.Standing(source, key)
	}
	first, _, ok := v.options.Tracker.PatchTaint(source.Name, key)
	return first, ok
}
