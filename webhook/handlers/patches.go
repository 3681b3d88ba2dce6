package handlers

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/validation"
)

// patchWrite is a write of a patch: old is nil when it is created, now when it is
// deleted.
type patchWrite struct {
	// name is that of the patch, unnamed while it is to be generated.
	name     string
	now, old *v1alpha1.ResourceSlicePatch
}

// change returns the write as TaintPolicies see it.
func (w *patchWrite) change() *taint.PatchChange {
	change := &taint.PatchChange{}
	if w.name != unnamed {
		change.Name = w.name
	}
	if w.now != nil {
		change.New = &w.now.Spec.Devices
	}
	// A patch that was not valid, stored without a review, did nothing: that it becomes valid is its
	// beginning.
	if w.old != nil && (!w.judged() || len(slicepatch.ValidatePatch(w.old)) == 0) {
		change.Old = &w.old.Spec.Devices
	}
	return change
}

// judged reports whether the patch is held against the rules of its own API: a write to one that
// is on its way out, or beside its spec, is not.
func (w *patchWrite) judged() bool {
	return w.now != nil && (w.old == nil || w.now.DeletionTimestamp == nil && !equality.Semantic.DeepEqual(w.now.Spec, w.old.Spec))
}

// validatePatch judges whether a ResourceSlicePatch is valid, and its taints like those of
// DeviceTaintRules. The rules that Tollgate writes out for patches are its own writes, and come
// under this verdict.
func (r request) validatePatch(ctx context.Context) (Result, error) {
	var w patchWrite
	w.now, w.old = readWrite(r, readWhole[v1alpha1.ResourceSlicePatch])
	w.name = r.writtenName()
	var found []policy.Finding
	var warnings []string
	if w.judged() {
		found = findings(append(slicepatch.ValidatePatch(w.now), slicepatch.ValidateFields(w.now, w.old)...))
		if len(found) == 0 {
			warnings = append(slicepatch.Warnings(w.now), validation.PatchWarnings(patchedTaints(w.now), patchedTaints(w.old), r.ServerClock.Now())...)
		}
	}
	change := w.change()
	writes := change.Writes()
	if len(writes) == 0 || r.isSelf() {
		return decided(found, warnings, nil), nil
	}
	in := r.taintInput(writes)
	in.Patch = change
	return r.enforce(ctx, in, found, warnings, func() (previewed, error) {
		return r.Preview.patch(ctx, r, in, &w)
	})
}

// patchedTaints returns the taints of a patch and the names that it selects devices by;
// zero for no patch.
func patchedTaints(patch *v1alpha1.ResourceSlicePatch) *validation.Patched {
	if patch == nil {
		return &validation.Patched{}
	}
	patched := &validation.Patched{Selector: slicepatch.NamesOf(patch.Spec.Devices.Filter)}
	for _, t := range patch.Spec.Devices.Taints {
		patched.Taints = append(patched.Taints, resourcev1.DeviceTaint{Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: t.TimeAdded})
	}
	return patched
}
