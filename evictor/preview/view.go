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

// View computes the effects of writes from the state of the tracker.
type View struct {
	Tracker *tracker.Tracker
	// Rules are those of the evictor.
	Rules decide.Rules
	// PodsKnown, NodesKnown, DevicesKnown and BudgetsKnown report whether the tracker
	// has all of them that there were at the start. NodesKnown or DevicesKnown is nil where
	// the taints of nodes or devices are not watched. A forecast without the budgets has no
	// numbers about them.
	PodsKnown, NodesKnown, DevicesKnown, BudgetsKnown func() bool
	// Policies returns the EvictionPolicies that are in force, nil for none. It may be nil
	// too.
	Policies func() *eviction.Set
	// NamespaceLabels returns the labels of a namespace, and false while they are not
	// known. A pod whose policy depends on them counts as one that leaves.
	NamespaceLabels func(name string) (labels.Labels, bool)
}

// treatments returns the rules, and the policies that are in force.
func (v *View) treatments() treatments {
	t := treatments{rules: v.Rules, namespaceLabels: v.NamespaceLabels}
	if v.Policies != nil {
		t.set = v.Policies()
	}
	return t
}

// read returns an error while the effects of some taints cannot be computed. Known reports
// whether all objects with such taints are read, nil for never.
func (v *View) read(known func() bool) error {
	switch {
	case known == nil:
		return ErrUnfollowed
	case !v.PodsKnown() || !known():
		return ErrUnread
	default:
		return nil
	}
}

// Node returns the changes for pods of a write of a node that is stored as old. The error
// is ErrUnread or ErrUnfollowed.
func (v *View) Node(old, node tracker.Node, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.NodesKnown); err != nil {
		return nil, err
	}
	return v.Tracker.IfNodeWas(old, node, now), nil
}

// Rule returns the same for a DeviceTaintRule that is stored as old, nil for none.
func (v *View) Rule(old *tracker.Rule, rule tracker.Rule, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.DevicesKnown); err != nil {
		return nil, err
	}
	return v.Tracker.IfRuleWas(old, rule, now), nil
}

// Patch returns the same for a ResourceSlicePatch with other taints or devices.
func (v *View) Patch(p tracker.PatchedTaints, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.DevicesKnown); err != nil {
		return nil, err
	}
	return v.Tracker.IfPatch(p, now), nil
}

// Slice returns the same for a ResourceSlice that is stored as old.
func (v *View) Slice(old, slice tracker.Slice, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.DevicesKnown); err != nil {
		return nil, err
	}
	return v.Tracker.IfSliceWas(old, slice, now), nil
}

// Nodes returns the changes for pods if the nodes were given taints: those with
// effect NoExecute of a key that the node does not have with that effect. Give is called
// with the labels of each node.
func (v *View) Nodes(give func(labels map[string]string) []corev1.Taint, now time.Time) ([]tracker.Change, error) {
	if err := v.read(v.NodesKnown); err != nil {
		return nil, err
	}
	var changes [][]tracker.Change
	for _, node := range v.Tracker.Nodes() {
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
			changes = append(changes, v.Tracker.IfNodeWas(old, written, now))
		}
	}
	return slices.Concat(changes...), nil
}
