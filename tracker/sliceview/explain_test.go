package sliceview_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	v := sliceview.New()
	v.SetSlice(slice("s", attributed("gpu-0", 1), attributed("gpu-1", 2), dev("gpu-2", taint("own"))))
	v.SetClass(deviceClass("ones", `device.attributes["d"].n == 1`))
	v.SetPatch(slicePatch(t, "first", `{priority: 1, filter: {deviceClassName: ones}, attributes: {d/n: {int: 7}}, taints: [{key: x, effect: None}]}`))
	v.SetPatch(slicePatch(t, "second", `{filter: {device: gpu-0}, attributes: {d/n: {int: 8}}}`))
	v.SetPatch(slicePatch(t, "wrong", `{filter: {driver: d}, attributes: {bare: {int: 8}}}`))
	v.SetRule(rule("r", only("d", "-", "-")))

	explained, found := v.Explain("s")
	require.True(t, found)
	require.Len(t, explained, 3)

	patched := explained[0]
	require.Equal(t, device.ID{Driver: "d", Pool: "p", Name: "gpu-0"}, patched.Device)
	require.Equal(t, []string{"first", "second"}, patched.Patches)
	require.Empty(t, patched.Failed)
	require.Equal(t, []slicepatch.Value[resourcev1.DeviceAttribute]{{
		Name: "n", Now: &resourcev1.DeviceAttribute{IntValue: new(int64(7))}, Published: &resourcev1.DeviceAttribute{IntValue: new(int64(1))},
		Patch: "first", Overruled: []slicepatch.Offer[resourcev1.DeviceAttribute]{{Patch: "second", Value: &resourcev1.DeviceAttribute{IntValue: new(int64(8))}}},
	}}, patched.Attributes)
	require.Equal(t, []string{"x patch:first", "r rule:r"}, sources(patched.Taints))

	untouched := explained[1]
	require.Empty(t, untouched.Patches)
	require.Empty(t, untouched.Attributes[0].Patch)
	require.Equal(t, []string{"r rule:r"}, sources(untouched.Taints))

	failed := explained[2]
	require.Empty(t, failed.Patches)
	require.Equal(t, []sliceview.Failure{{Patch: "first", Message: "device class ones: selectors[0]: no such key: n"}}, failed.Failed)
	require.Equal(t, []string{"own", "r rule:r"}, sources(failed.Taints))

	_, found = v.Explain("other")
	require.False(t, found)
}

func TestExplainSaysOfEachDeviceWhyAPatchFailedOnIt(t *testing.T) {
	t.Parallel()
	v := sliceview.New()
	v.SetSlice(slice("s", attributed("gpu-0", 1), dev("gpu-1")))
	v.SetPatch(slicePatch(t, "p", `{filter: {selectors: [{cel: {expression: 'device.attributes["d"].n == 2 || device.attributes["d"].model == "x"'}}]}}`))
	explained, _ := v.Explain("s")
	require.Equal(t, "selectors[0]: no such key: model", explained[0].Failed[0].Message)
	require.Equal(t, "selectors[0]: no such key: n", explained[1].Failed[0].Message)
}

// sources describes taints by their keys and who put them there.
func sources(taints []sliceview.Taint) []string {
	var list []string
	for _, t := range taints {
		words := t.Key
		if t.Patch != "" {
			words += " patch:" + t.Patch
		}
		if t.Rule != "" {
			words += " rule:" + t.Rule
		}
		list = append(list, words)
	}
	return list
}

// TestModelExplain makes random changes, and compares what is explained with what is
// listed, and who is said to be the source with what is computed from scratch.
func TestModelExplain(t *testing.T) {
	t.Parallel()
	seed := number(t, seedEnv, rand.Uint64())
	t.Logf("%s=%d", seedEnv, seed)
	seen := explanations{}
	for world := range uint64(20) {
		d, o, v := patchDice{dice{rand.New(rand.NewPCG(seed, world))}}, newObjects(), sliceview.New()
		for made := range 120 {
			d.write(o)(v)
			if made%20 == 0 {
				explainsRight(t, v, o, &seen)
			}
		}
		explainsRight(t, v, o, &seen)
	}
	require.Greater(t, seen.decided, 100)
	require.Greater(t, seen.failed, 50)
	require.Positive(t, seen.limited)
}

// explanations counts what was met.
type explanations struct{ decided, failed, limited int }

func explainsRight(t *testing.T, v *sliceview.View, o objects, seen *explanations) {
	t.Helper()
	for _, s := range v.List() {
		explained, found := v.Explain(s.Name)
		require.True(t, found)
		require.Len(t, explained, len(s.Spec.Devices))
		for i := range explained {
			raw := o.slices[s.Name]
			requireListed(t, &s.Spec.Devices[i], &explained[i])
			o.requireSources(t, raw, &raw.Spec.Devices[i], &explained[i])
			if explained[i].Limited != "" {
				seen.limited++
			}
			seen.failed += len(explained[i].Failed)
			for _, value := range explained[i].Attributes {
				if value.Patch != "" {
					seen.decided++
				}
			}
		}
	}
}

// requireListed requires an explanation to be about what is listed of a device.
func requireListed(t *testing.T, listed *resourcev1.Device, e *sliceview.Explanation) {
	t.Helper()
	attributes := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
	for _, value := range e.Attributes {
		if value.Now != nil {
			attributes[value.Name] = *value.Now
		}
	}
	capacity := map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}
	for _, value := range e.Capacity {
		if value.Now != nil {
			capacity[value.Name] = *value.Now
		}
	}
	require.True(t, slicepatch.SameAttributes(listed.Attributes, attributes), "%v %v", listed, e)
	require.True(t, slicepatch.SameCapacity(listed.Capacity, capacity), "%v %v", listed, e)
	taints := []resourcev1.DeviceTaint{}
	for _, taint := range e.Taints {
		taints = append(taints, taint.DeviceTaint)
	}
	require.Equal(t, append([]resourcev1.DeviceTaint{}, listed.Taints...), taints)
}

// requireSources requires an explanation to name who did what by the words of the KEP.
func (o objects) requireSources(t *testing.T, s *resourcev1.ResourceSlice, d *resourcev1.Device, e *sliceview.Explanation) {
	t.Helper()
	var meant []*v1alpha1.ResourceSlicePatch
	var names, failed, said []string
	for name, p := range o.patches {
		switch o.answer(p, s, d) {
		case yes:
			meant = append(meant, p)
		case fails:
			failed = append(failed, name)
		case no:
		}
	}
	slices.SortFunc(meant, func(a, b *v1alpha1.ResourceSlicePatch) int {
		return cmp.Or(-cmp.Compare(a.Spec.Devices.Priority, b.Spec.Devices.Priority),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for _, p := range meant {
		names = append(names, p.Name)
	}
	for _, f := range e.Failed {
		said = append(said, f.Patch)
		require.NotEmpty(t, f.Message)
	}
	slices.Sort(failed)
	require.Equal(t, names, e.Patches)
	require.Equal(t, failed, said)
	for _, value := range e.Attributes {
		winner := ""
		for _, p := range slices.Backward(meant) {
			for _, name := range []resourcev1.QualifiedName{value.Name, resourcev1.QualifiedName(s.Spec.Driver) + "/" + value.Name} {
				if _, gives := p.Spec.Devices.Attributes[name]; gives && e.Limited == "" {
					winner = p.Name
				}
			}
		}
		require.Equal(t, winner, value.Patch, value.Name)
	}
	o.requireTaints(t, s, d, e.Taints)
}

func (o objects) requireTaints(t *testing.T, s *resourcev1.ResourceSlice, d *resourcev1.Device, taints []sliceview.Taint) {
	t.Helper()
	for i, taint := range taints {
		switch {
		case i < len(d.Taints):
			require.Empty(t, taint.Patch+taint.Rule)
		case taint.Rule != "":
			require.Empty(t, taint.Patch)
			require.Equal(t, o.rules[taint.Rule].Spec.Taint, taint.DeviceTaint)
			require.True(t, selects(o.rules[taint.Rule].Spec.DeviceSelector, s, d.Name))
		default:
			require.True(t, slices.ContainsFunc(o.patches[taint.Patch].Spec.Devices.Taints, func(own v1alpha1.PatchedTaint) bool {
				return own.Key == taint.Key && own.Effect == taint.Effect
			}))
			require.Equal(t, yes, o.answer(o.patches[taint.Patch], s, d))
		}
	}
}
