package sliceview_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// slicePatch is a patch with that name, whose spec.devices is written in YAML.
func slicePatch(tb testing.TB, name, devices string) *v1alpha1.ResourceSlicePatch {
	tb.Helper()
	p := &v1alpha1.ResourceSlicePatch{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(start)},
	}
	require.NoError(tb, yaml.UnmarshalStrict([]byte(devices), &p.Spec.Devices))
	return p
}

func deviceClass(name string, expressions ...string) *resourcev1.DeviceClass {
	c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, e := range expressions {
		c.Spec.Selectors = append(c.Spec.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: e}})
	}
	return c
}

// attributed is dev with some number as the attribute n.
func attributed(name string, n int64) func(*resourcev1.ResourceSlice) {
	return func(s *resourcev1.ResourceSlice) {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"n": {IntValue: &n}},
		})
	}
}

// detailed describes slices by name: each device with its attributes that are numbers,
// its capacity and the keys of its taints.
func detailed(slices []*resourcev1.ResourceSlice) map[string][]string {
	found := map[string][]string{}
	for _, s := range slices {
		devices := []string{}
		for i := range s.Spec.Devices {
			devices = append(devices, detail(&s.Spec.Devices[i]))
		}
		found[s.Name] = devices
	}
	return found
}

func detail(d *resourcev1.Device) string {
	words := []string{d.Name}
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		if n := d.Attributes[name].IntValue; n != nil {
			words = append(words, fmt.Sprintf("%s=%d", name, *n))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		value := d.Capacity[name].Value.DeepCopy()
		words = append(words, fmt.Sprintf("%s:%s", name, value.String()))
	}
	for _, t := range d.Taints {
		words = append(words, "!"+t.Key)
	}
	return strings.Join(words, " ")
}

func TestPatches(t *testing.T) {
	t.Parallel()
	s := func(v *sliceview.View) {
		v.SetSlice(slice("s", attributed("gpu-0", 1), attributed("gpu-1", 2)))
		v.SetSlice(slice("t", in("e", "q"), attributed("gpu-0", 1)))
	}
	patch := func(name, devices string) func(*sliceview.View) {
		return func(v *sliceview.View) { v.SetPatch(slicePatch(t, name, devices)) }
	}
	tests := map[string]struct {
		events []func(*sliceview.View)
		want   map[string][]string
	}{
		"no filter is every device": {
			[]func(*sliceview.View){patch("p", `{attributes: {d/n: {int: 9}, e/n: {int: 8}}}`)},
			map[string][]string{"s": {"gpu-0 e/n=8 n=9", "gpu-1 e/n=8 n=9"}, "t": {"gpu-0 d/n=9 n=8"}},
		},
		"a driver": {
			[]func(*sliceview.View){patch("p", `{filter: {driver: e}, attributes: {x/a: {int: 9}}}`)},
			map[string][]string{"s": {"gpu-0 n=1", "gpu-1 n=2"}, "t": {"gpu-0 n=1 x/a=9"}},
		},
		"a pool": {
			[]func(*sliceview.View){patch("p", `{filter: {pool: p}, capacity: {x/a: {value: 1Gi}}}`)},
			map[string][]string{"s": {"gpu-0 n=1 x/a:1Gi", "gpu-1 n=2 x/a:1Gi"}, "t": {"gpu-0 n=1"}},
		},
		"a device of every pool": {
			[]func(*sliceview.View){patch("p", `{filter: {device: gpu-0}, taints: [{key: a, effect: None}]}`)},
			map[string][]string{"s": {"gpu-0 n=1 !a", "gpu-1 n=2"}, "t": {"gpu-0 n=1 !a"}},
		},
		"an expression, that fails on some": {
			[]func(*sliceview.View){patch("p", `{filter: {selectors: [{cel: {expression: "device.attributes['d'].n == 2"}}]}, attributes: {x/a: {int: 9}}}`)},
			map[string][]string{"s": {"gpu-0 n=1", "gpu-1 n=2 x/a=9"}, "t": {"gpu-0 n=1"}},
		},
		"an expression sees what is published": {
			[]func(*sliceview.View){
				patch("p", `{priority: 1, attributes: {d/n: {int: 9}}}`),
				patch("q", `{filter: {driver: d, selectors: [{cel: {expression: "device.attributes['d'].n == 9"}}]}, attributes: {x/a: {int: 9}}}`),
			},
			map[string][]string{"s": {"gpu-0 n=9", "gpu-1 n=9"}, "t": {"gpu-0 d/n=9 n=1"}},
		},
		"a class that comes": {
			[]func(*sliceview.View){
				patch("p", `{filter: {deviceClassName: c}, attributes: {x/a: {int: 9}}}`),
				func(v *sliceview.View) { v.List(); v.SetClass(deviceClass("c", "device.driver == 'e'")) },
			},
			map[string][]string{"s": {"gpu-0 n=1", "gpu-1 n=2"}, "t": {"gpu-0 n=1 x/a=9"}},
		},
		"a class that changes": {
			[]func(*sliceview.View){
				func(v *sliceview.View) { v.SetClass(deviceClass("c", "device.driver == 'e'")) },
				patch("p", `{filter: {deviceClassName: c}, attributes: {x/a: {int: 9}}}`), patch("q", `{filter: {deviceClassName: c}, attributes: {x/b: {int: 9}}}`),
				func(v *sliceview.View) { v.List(); v.SetClass(deviceClass("c", "device.attributes['d'].n == 1")) },
			},
			map[string][]string{"s": {"gpu-0 n=1 x/a=9 x/b=9", "gpu-1 n=2"}, "t": {"gpu-0 n=1"}},
		},
		"a class that goes": {
			[]func(*sliceview.View){
				func(v *sliceview.View) { v.SetClass(deviceClass("c")) },
				patch("p", `{filter: {deviceClassName: c}, attributes: {x/a: {int: 9}}}`),
				func(v *sliceview.View) { v.List(); v.DeleteClass("c") },
			},
			map[string][]string{"s": {"gpu-0 n=1", "gpu-1 n=2"}, "t": {"gpu-0 n=1"}},
		},
		"the highest priority wins, and what names a device no more than what does not": {
			[]func(*sliceview.View){
				patch("p", `{filter: {driver: d, pool: p, device: gpu-0}, attributes: {x/a: {int: 1}}}`), patch("q", `{priority: 1, attributes: {x/a: {int: 2}}}`),
				patch("r", `{filter: {driver: d}, priority: -1, attributes: {x/a: {int: 3}, d/n: {"null": {}}}}`),
			},
			map[string][]string{"s": {"gpu-0 x/a=2", "gpu-1 x/a=2"}, "t": {"gpu-0 n=1 x/a=2"}},
		},
		"taints of patches come before those of rules": {
			[]func(*sliceview.View){
				func(v *sliceview.View) { v.SetRule(rule("a", every())) },
				patch("p", `{filter: {driver: e}, taints: [{key: z, effect: None}]}`),
			},
			map[string][]string{"s": {"gpu-0 n=1 !a", "gpu-1 n=2 !a"}, "t": {"gpu-0 n=1 !z !a"}},
		},
		"a patch that goes": {
			[]func(*sliceview.View){
				patch("p", `{attributes: {x/a: {int: 9}}, taints: [{key: a, effect: None}]}`),
				func(v *sliceview.View) { v.List(); v.DeletePatch("p"); v.DeletePatch("p") },
			},
			map[string][]string{"s": {"gpu-0 n=1", "gpu-1 n=2"}, "t": {"gpu-0 n=1"}},
		},
		"a patch that turns to other devices": {
			[]func(*sliceview.View){
				patch("p", `{filter: {driver: d}, attributes: {x/a: {int: 9}}}`), func(v *sliceview.View) { v.List() },
				patch("p", `{filter: {driver: e}, attributes: {x/a: {int: 9}}}`),
			},
			map[string][]string{"s": {"gpu-0 n=1", "gpu-1 n=2"}, "t": {"gpu-0 n=1 x/a=9"}},
		},
		"a patch that is not valid is not in force": {
			[]func(*sliceview.View){
				patch("p", `{attributes: {x/a: {int: 9}}}`), func(v *sliceview.View) { v.List() }, patch("p", `{attributes: {a: {int: 9}}}`),
			},
			map[string][]string{"s": {"gpu-0 n=1", "gpu-1 n=2"}, "t": {"gpu-0 n=1"}},
		},
		"a patch that is put right is": {
			[]func(*sliceview.View){
				patch("p", `{attributes: {a: {int: 9}}}`), func(v *sliceview.View) { v.List() }, patch("p", `{filter: {driver: e}, attributes: {x/a: {int: 9}}}`),
			},
			map[string][]string{"s": {"gpu-0 n=1", "gpu-1 n=2"}, "t": {"gpu-0 n=1 x/a=9"}},
		},
		"a slice that changes": {
			[]func(*sliceview.View){
				patch("p", `{filter: {selectors: [{cel: {expression: "device.attributes['d'].n == 2"}}]}, attributes: {x/a: {int: 9}}}`),
				func(v *sliceview.View) {
					v.List()
					v.SetSlice(slice("s", attributed("gpu-1", 2), attributed("gpu-0", 2)))
				},
			},
			map[string][]string{"s": {"gpu-1 n=2 x/a=9", "gpu-0 n=2 x/a=9"}, "t": {"gpu-0 n=1"}},
		},
		"a slice that moves": {
			[]func(*sliceview.View){
				patch("p", `{filter: {driver: e, selectors: [{cel: {expression: "true"}}]}, attributes: {x/a: {int: 9}}}`),
				func(v *sliceview.View) { v.List(); v.SetSlice(slice("s", in("e", "p"), attributed("gpu-0", 1))) },
				func(v *sliceview.View) { v.List(); v.SetSlice(slice("t", in("d", "q"), attributed("gpu-0", 1))) },
			},
			map[string][]string{"s": {"gpu-0 n=1 x/a=9"}, "t": {"gpu-0 n=1"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, last := sliceview.New(), sliceview.New()
			s(first)
			for _, event := range tt.events {
				event(first)
			}
			require.Equal(t, tt.want, detailed(first.List()))
			if strings.HasPrefix(name, "a slice that") {
				return
			}
			for _, event := range tt.events {
				event(last)
			}
			s(last)
			require.Equal(t, tt.want, detailed(last.List()), "slices came last")
		})
	}
}

func TestWhatNoPatchIsAboutIsShared(t *testing.T) {
	t.Parallel()
	v := sliceview.New()
	raw, other := slice("s", attributed("gpu-0", 1), attributed("gpu-1", 2)), slice("t", in("e", "q"), attributed("gpu-0", 1))
	v.SetSlice(raw)
	v.SetSlice(other)
	v.SetPatch(slicePatch(t, "p", `{filter: {driver: d, selectors: [{cel: {expression: "device.attributes['d'].n == 1"}}]}, attributes: {x/a: {int: 9}}}`))
	untouched, _ := v.Get("t")
	require.Same(t, other, untouched)
	patched, _ := v.Get("s")
	require.NotSame(t, raw, patched)
	pointer := func(d resourcev1.Device) uintptr { return reflect.ValueOf(d.Attributes).Pointer() }
	require.Equal(t, pointer(raw.Spec.Devices[1]), pointer(patched.Spec.Devices[1]))
	require.NotEqual(t, pointer(raw.Spec.Devices[0]), pointer(patched.Spec.Devices[0]))
	require.Equal(t, []string{"gpu-0 n=1", "gpu-1 n=2"}, detailed([]*resourcev1.ResourceSlice{raw})["s"], "what is published was written to")

	v.SetPatch(slicePatch(t, "p", `{filter: {driver: d}, attributes: {d/z: {"null": {}}}}`))
	patched, _ = v.Get("s")
	require.Equal(t, pointer(raw.Spec.Devices[0]), pointer(patched.Spec.Devices[0]), "nothing was there to remove")
	v.SetPatch(slicePatch(t, "p", `{filter: {driver: f}, attributes: {x/a: {int: 9}}}`))
	patched, _ = v.Get("s")
	require.Same(t, raw, patched)
}

func TestAPatchWithoutAttributesTaints(t *testing.T) {
	t.Parallel()
	v := sliceview.New()
	v.LeaveOutAttributes()
	v.SetSlice(slice("s", attributed("gpu-0", 1)))
	v.SetPatch(slicePatch(t, "p", `{filter: {driver: d}, attributes: {x/a: {int: 9}}, capacity: {x/m: {value: 1Gi}}, taints: [{key: a/b, effect: NoSchedule}]}`))
	patched, _ := v.Get("s")
	require.Equal(t, []string{"gpu-0 n=1 !a/b"}, detailed([]*resourcev1.ResourceSlice{patched})["s"])
	report, ok := v.Report("p", 1)
	require.True(t, ok)
	require.Equal(t, 1, report.Matched)
}

func TestReport(t *testing.T) {
	t.Parallel()
	v := sliceview.New()
	var thirty []string
	for i := range 31 {
		thirty = append(thirty, fmt.Sprintf("y/n%d: {int: 1}", i))
	}
	v.SetSlice(slice("s", attributed("gpu-1", 1), attributed("gpu-0", 2), dev("gpu-2"), dev("gpu-3")))
	v.SetSlice(slice("t", in("c", "q"), attributed("gpu-0", 1)))
	v.SetPatch(slicePatch(t, "some", `{filter: {selectors: [{cel: {expression: "device.attributes[device.driver].n == 1"}}]}, attributes: {x/a: {int: 9}}}`))
	v.SetPatch(slicePatch(t, "much", `{filter: {driver: d, device: gpu-1}, attributes: {`+strings.Join(thirty, ",")+`}}`))
	v.SetPatch(slicePatch(t, "tainting", `{filter: {driver: d, device: gpu-1}, taints: [{key: a, effect: None}]}`))
	v.SetPatch(slicePatch(t, "wrong", `{attributes: {a: {int: 9}}}`))
	id := func(driver, pool, name string) device.ID { return device.ID{Driver: driver, Pool: pool, Name: name} }
	limited := sliceview.Problem{Device: id("d", "p", "gpu-1"), Message: "would have 33 attributes and capacities, of which 32 are allowed"}

	got, found := v.Report("some", 1)
	require.True(t, found)
	require.Equal(t, sliceview.Report{
		Matched: 2, Failed: 2, Limited: 1,
		FirstMatched: []device.ID{id("c", "q", "gpu-0")},
		FirstFailed:  []sliceview.Problem{{Device: id("d", "p", "gpu-2"), Message: "selectors[0]: no such key: n"}},
		FirstLimited: []sliceview.Problem{limited},
	}, got)
	got, _ = v.Report("much", 8)
	require.Equal(t, 1, got.Matched)
	require.Equal(t, []sliceview.Problem{limited}, got.FirstLimited)
	got, _ = v.Report("tainting", 8)
	require.Equal(t, 1, got.Matched)
	require.Zero(t, got.Limited, "taints are never dropped")
	got, found = v.Report("wrong", 8)
	require.True(t, found)
	require.Zero(t, got.Matched)
	require.ErrorContains(t, got.Problems.ToAggregate(), "spec.devices.attributes[a]")
	_, found = v.Report("none", 8)
	require.False(t, found)

	slices, _ := v.Get("s")
	require.Equal(t, "gpu-1 n=1 !a", detail(&slices.Spec.Devices[0]))
}

// A handler must know of what a patch changes, and of nothing else.
func TestHandlersAreToldWhatPatchesChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.slices.set(t, slice("s", attributed("gpu-0", 1)))
		w.slices.set(t, slice("t", in("e", "q"), attributed("gpu-0", 1)))
		w.synced()
		r := w.subscribe()
		require.Len(t, r.told(), 2)
		p := slicePatch(t, "p", `{filter: {driver: d}, attributes: {x/a: {int: 1}}}`)
		w.view.SetPatch(p)
		require.Equal(t, []string{"update s [gpu-0]"}, r.told())
		written := p.DeepCopy()
		written.Status.DevicesMatched = 1
		w.view.SetPatch(written)
		require.Empty(t, r.told(), "only its status was written")
		w.view.SetPatch(slicePatch(t, "p", `{filter: {driver: d}, capacity: {x/a: {value: 1}}}`))
		require.Len(t, r.told(), 1)
		w.view.SetPatch(slicePatch(t, "p", `{filter: {driver: d}, capacity: {x/a: {value: 1}}, attributes: {d/none: {"null": {}}}}`))
		require.Empty(t, r.told(), "it does nothing else")
		w.view.DeletePatch("p")
		require.Len(t, r.told(), 1)
		r.agrees(w)
	})
}

// A taint of a patch counts since the time that status says.
func TestATaintOfAPatchHasTheTimeOfItsStatus(t *testing.T) {
	t.Parallel()
	v := sliceview.New()
	v.SetSlice(slice("s", dev("gpu-0")))
	p := slicePatch(t, "p", `{taints: [{key: a, effect: NoExecute}]}`)
	v.SetPatch(p)
	s, _ := v.Get("s")
	require.Nil(t, s.Spec.Devices[0].Taints[0].TimeAdded)
	p = p.DeepCopy()
	p.Status.Taints = []v1alpha1.PatchedTaint{{Key: "a", Effect: "NoExecute", TimeAdded: new(metav1.NewTime(start.Add(time.Hour)))}}
	v.SetPatch(p)
	s, _ = v.Get("s")
	require.Equal(t, start.Add(time.Hour), s.Spec.Devices[0].Taints[0].TimeAdded.Time)
}
