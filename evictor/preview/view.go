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
	// ErrUnread is returned until all objects are read that were there at the start: a
	// count would be too small.
	ErrUnread = errors.New("not all pods and what taints them have been read yet")
	// ErrUnfollowed is returned where taints of that kind are not watched.
	ErrUnfollowed = errors.New("taints of that kind are not followed")
)

// Options configure a View.
type Options struct {
	Tracker *tracker.Tracker
	// Rules are those of the evictor.
	Rules decide.Rules
	// PodsKnown, NodesKnown, DevicesKnown and BudgetsKnown report whether the tracker
	// has all of them that there were at the start. NodesKnown or DevicesKnown is nil where
	// the taints of nodes or devices are not watched; of the others, nil is false. A
	// forecast without the budgets has no numbers about them.
	PodsKnown, NodesKnown, DevicesKnown, BudgetsKnown func() bool
	// Policies returns the EvictionPolicies that are in force, nil for none. It may be nil
	// too.
	Policies func() *eviction.Set
	// NamespaceLabels returns the labels of a namespace, and false while they are not
	// known. A pod whose policy depends on them counts as one that leaves.
	NamespaceLabels func(name string) (labels.Labels, bool)
}

// View computes the effects of writes from the state of the tracker.
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

func (o *Options) treatments() treatments {
	if o.Policies == nil {
		return treatments{}
	}
	return treatments{o.Policies(), o.NamespaceLabels}
}

// read returns an error while the effects of some taints cannot be computed. Known reports
// whether all objects with such taints are read, nil for never.
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

// Live returns the number of live pods in the cluster: those on nodes that are neither
// finished nor terminating.
func (v *View) Live() int { return v.options.Tracker.Live() }

// PoolOfOthers reports whether a slice belongs to a pool of another node, as far as slices
// are known.
func (v *View) PoolOfOthers(slice *tracker.Slice) bool { return v.options.Tracker.PoolOfOthers(slice) }

// Node returns the changes for pods of a write of a node that is stored as old. The error
// is ErrUnread or ErrUnfollowed.
func (v *View) Node(old, node tracker.Node, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.options.NodesKnown); err != nil {
		return nil, err
	}
	return v.options.Tracker.IfNodeWas(old, node, now), nil
}

// Rule returns the same for a DeviceTaintRule that is stored as old, nil for none.
func (v *View) Rule(old *tracker.Rule, rule tracker.Rule, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.options.DevicesKnown); err != nil {
		return nil, err
	}
	return v.options.Tracker.IfRuleWas(old, rule, now), nil
}

// Patch returns the same for a ResourceSlicePatch with other taints or devices.
func (v *View) Patch(p tracker.PatchedTaints, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.options.DevicesKnown); err != nil {
		return nil, err
	}
	return v.options.Tracker.IfPatch(p, now), nil
}

// Slice returns the same for a ResourceSlice that is stored as old.
func (v *View) Slice(old, slice tracker.Slice, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.options.DevicesKnown); err != nil {
		return nil, err
	}
	return v.options.Tracker.IfSliceWas(old, slice, now), nil
}

// Nodes returns the changes for pods if the nodes were given taints: those with
// effect NoExecute of a key that the node does not have with that effect. Give is called
// with the labels of each node.
func (v *View) Nodes(give func(labels map[string]string) []corev1.Taint, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.options.NodesKnown); err != nil {
		return nil, err
	}
	var changes [][]tracker.Change
	for _, node := range v.options.Tracker.Nodes() {
		old := tracker.Node{Name: node.Name}
		for i := range node.Taints {
			old.Taints = append(old.Taints, node.Taints[i].Native())
		}
		written := old
		written.Taints = slices.Clone(old.Taints)
		for _, taint := range give(node.Labels.Map()) {
			isStored := slices.ContainsFunc(old.Taints, func(stored corev1.Taint) bool { return stored.MatchTaint(&taint) })
			if !isStored && taint.Effect == corev1.TaintEffectNoExecute {
				written.Taints = append(written.Taints, taint)
			}
		}
		if len(written.Taints) > len(old.Taints) {
			changes = append(changes, v.options.Tracker.IfNodeWas(old, written, now))
		}
	}
	return slices.Concat(changes...), nil
}

// Forecast returns the effect of changes on pods.
func (v *View) Forecast(now time.Time, changes []tracker.Change) Forecast {
	t := foreteller{
		rules: v.options.Rules, now: now, treatments: v.options.treatments(), live: v.options.Tracker.Live(),
		guarded: func(*tracker.Pod) bool { return false },
	}
	known := v.options.BudgetsKnown()
	if known {
		t.guarded = guards(v.options.Tracker)
	}
	f := t.of(changes)
	f.BudgetsUnknown = !known
	return f
}

// Standing returns the NoExecute taint with a key of a node or a rule. Of the rules that
// are written for a patch, it is the taint that appeared last: by then the patch was
// written, or selected more devices.
func (v *View) Standing(source tracker.Source, key string) (tracker.Taint, bool) {
	switch source.Kind {
	case tracker.SourceNode:
		_, taints := v.options.Tracker.Taints(source.Name)
		if at := slices.IndexFunc(taints, func(t tracker.Taint) bool { return t.Key == key }); at >= 0 {
			return taints[at], true
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

// FirstStanding is Standing, except that it returns for a patch the taint that appeared
// first: evictions that an approval lets through for it are let through for those that
// follow.
func (v *View) FirstStanding(source tracker.Source, key string) (tracker.Taint, bool) {
	if source.Kind != tracker.SourcePatch {
		return v.Standing(source, key)
	}
	first, _, ok := v.options.Tracker.PatchTaint(source.Name, key)
	return first, ok
}
