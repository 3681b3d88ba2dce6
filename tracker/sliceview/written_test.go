package sliceview_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// writtenFor is a rule as Tollgate writes it out for a patch with that UID: the taint
// with the key of the rule's name.
func writtenFor(uid, name string, selector *resourcev1.DeviceTaintSelector) *resourcev1.DeviceTaintRule {
	r := rule(name, selector)
	r.Labels = map[string]string{v1alpha1.LabelPatch: uid}
	r.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceSlicePatch", Name: "p", UID: types.UID(uid), Controller: new(true),
	}}
	return r
}

// onlyLabelled is a rule that somebody else gave the label of a patch.
func onlyLabelled(uid, name string, selector *resourcev1.DeviceTaintSelector) *resourcev1.DeviceTaintRule {
	r := writtenFor(uid, name, selector)
	r.OwnerReferences = nil
	return r
}

// The taint of a patch is said once, in whatever order its informer and that of the rules
// tell of it.
func TestRulesThatWereWrittenOutForAPatch(t *testing.T) {
	t.Parallel()
	const tainting = `{filter: {pool: p}, taints: [{key: of-patch, effect: NoExecute}]}`
	event := func(object string, happen func(v *sliceview.View)) step {
		return step{object: object, happen: func(w *world) { happen(w.view) }}
	}
	slices := setSlice(slice("s", dev("gpu-0"), dev("gpu-1")))
	written := setRule(writtenFor("p", "written", only("d", "p", "gpu-0")))
	patch := event("patch p", func(v *sliceview.View) { v.SetPatch(slicePatch(t, "p", tainting)) })
	tests := map[string]struct {
		steps []step
		want  []string
	}{
		"of a patch that is there":       {[]step{slices, written, patch}, []string{"gpu-0 of-patch", "gpu-1 of-patch"}},
		"of a patch that is not known":   {[]step{slices, written}, []string{"gpu-0 written", "gpu-1"}},
		"beside rules of somebody else":  {[]step{slices, written, patch, setRule(rule("other", only("d", "p", "-")))}, []string{"gpu-0 of-patch other", "gpu-1 of-patch other"}},
		"with the label alone":           {[]step{slices, setRule(onlyLabelled("p", "other", only("d", "p", "gpu-0"))), patch}, []string{"gpu-0 of-patch other", "gpu-1 of-patch"}},
		"of another patch of that name":  {[]step{slices, setRule(writtenFor("before", "written", only("d", "p", "gpu-0"))), patch}, []string{"gpu-0 of-patch written", "gpu-1 of-patch"}},
		"that lost the label":            {[]step{slices, written, patch, setRule(rule("written", only("d", "p", "gpu-0")))}, []string{"gpu-0 of-patch written", "gpu-1 of-patch"}},
		"with a label that says nothing": {[]step{slices, setRule(writtenFor("", "written", only("d", "p", "gpu-0"))), patch}, []string{"gpu-0 of-patch written", "gpu-1 of-patch"}},
		"of a patch that went": {
			[]step{slices, written, patch, event("patch p", func(v *sliceview.View) { v.DeletePatch("p") })},
			[]string{"gpu-0 written", "gpu-1"},
		},
		"of a patch that went, and went itself": {
			[]step{slices, written, patch, event("patch p", func(v *sliceview.View) { v.DeletePatch("p") }), deleteRule("written")},
			[]string{"gpu-0", "gpu-1"},
		},
		"of a patch that is no longer valid": {
			[]step{slices, written, patch, event("patch p", func(v *sliceview.View) { v.SetPatch(slicePatch(t, "p", `{attributes: {bare: {int: 1}}}`)) })},
			[]string{"gpu-0 written", "gpu-1"},
		},
		"of a patch that has a successor": {
			[]step{slices, written, patch, event("patch p", func(v *sliceview.View) {
				next := slicePatch(t, "p", tainting)
				next.UID = "next"
				v.SetPatch(next)
			})},
			[]string{"gpu-0 of-patch written", "gpu-1 of-patch"},
		},
		"for a device that the patch is no longer meant for": {
			[]step{slices, written, patch, event("patch p", func(v *sliceview.View) {
				v.SetPatch(slicePatch(t, "p", `{filter: {device: gpu-1}, taints: [{key: of-patch, effect: NoExecute}]}`))
			})},
			[]string{"gpu-0", "gpu-1 of-patch"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				orders(test.steps, func(steps []step) {
					w := newWorld(t).synced()
					r := w.subscribe()
					for _, s := range steps {
						s.happen(w)
						w.view.List()
					}
					w.lists(map[string][]string{"s": test.want})
					r.agrees(w)
				})
			})
		})
	}
}

// Nobody sees the taint twice, or not at all, on the way.
func TestTheTaintOfAPatchIsAlwaysThereOnce(t *testing.T) {
	t.Parallel()
	v := sliceview.New()
	v.SetSlice(slice("s", dev("gpu-0")))
	patch := slicePatch(t, "p", `{taints: [{key: t, effect: NoExecute}]}`)
	steps := []func(){
		func() { v.SetPatch(patch) },
		func() { v.SetRule(writtenFor("p", "t", only("d", "p", "gpu-0"))) },
		func() { v.SetRule(writtenFor("p", "t2", only("d", "p", "-"))) },
		func() { v.DeleteRule("t2") },
		func() { v.DeletePatch("p") },
		func() { v.SetPatch(patch) },
		func() { v.DeleteRule("t") },
	}
	for i, step := range steps {
		step()
		s, _ := v.Get("s")
		require.Len(t, s.Spec.Devices[0].Taints, 1, "after step %d", i)
	}
}
