package tracker

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// patchKind is the kind of ResourceSlicePatches in references to owners.
var patchKind = v1alpha1.GroupVersion.WithKind("ResourceSlicePatch").GroupKind()

// PatchRef names one ResourceSlicePatch for ever. The zero PatchRef is none.
type PatchRef struct {
	Name string
	UID  types.UID
}

// Source returns the patch as the source of a taint.
func (p PatchRef) Source() Source {
	return Source{Kind: SourcePatch, Name: p.Name, UID: p.UID}
}

// PatchOf returns the patch that a rule is written out for; zero for none. Neither the
// label nor the owner alone says so: users may set either, and only Tollgate both.
func PatchOf(rule *resourcev1.DeviceTaintRule) PatchRef {
	owner := metav1.GetControllerOfNoCopy(rule)
	if owner == nil || owner.UID == "" || owner.Name == "" || rule.Labels[v1alpha1.LabelPatch] != string(owner.UID) ||
		schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind() != patchKind {
		return PatchRef{}
	}
	return PatchRef{Name: owner.Name, UID: owner.UID}
}

// PatchRules returns the names of the known rules that are written out for patches of a
// name, whatever their UID, sorted.
func (t *Tracker) PatchRules(patch string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Sorted(maps.Keys(t.written[patch]))
}

// Patches returns the patches for which a rule is known, sorted.
func (t *Tracker) Patches() []PatchRef {
	t.mu.RLock()
	defer t.mu.RUnlock()
	patches := map[PatchRef]struct{}{}
	for _, rules := range t.written {
		for _, rule := range rules {
			patches[rule.Patch] = struct{}{}
		}
	}
	return slices.SortedFunc(maps.Keys(patches), func(a, b PatchRef) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
}

// Standing returns the NoExecute taint with a key of a node or a rule; false if there is none. Of the taints
// in the rules of patches of a name it returns the ones that appeared first and last. The rules of one patch
// may be written long after each other, and one more when a device comes or the patch is widened. UIDs do
// not matter.
func (t *Tracker) Standing(source Source, key string) (first, last Taint, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	consider := func(taints []Taint) {
		for _, taint := range taints {
			if taint.Key != key || taint.Effect != corev1.TaintEffectNoExecute {
				continue
			}
			if !ok || compareAppeared(taint, first) < 0 {
				first = taint
			}
			if !ok || compareAppeared(taint, last) > 0 {
				last = taint
			}
			ok = true
		}
	}
	switch source.Kind {
	case SourceNode:
		consider(t.nodes[source.Name].taints)
	case SourceRule:
		if rule, known := t.rules[source.Name]; known {
			consider(rule.taints)
		}
	case SourcePatch:
		for _, rule := range t.written[source.Name] {
			consider(rule.taints)
		}
	case SourceSlice:
	}
	return first, last, ok
}

func compareAppeared(a, b Taint) int {
	return cmp.Or(a.Appeared().Compare(b.Appeared()), cmp.Compare(a.Source.Name, b.Source.Name))
}
