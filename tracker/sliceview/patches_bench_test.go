package sliceview_test

import (
	"fmt"
	"strconv"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// maxAsked is how many questions about devices are asked for a measurement.
const maxAsked = 100 * 5000 * devicesASlice

// filters say for which devices the n-th of many patches is.
var filters = []struct {
	name   string
	filter func(n, slices int) string
	// each patch asks about every device.
	asksAll bool
}{
	{name: "pool", filter: func(n, slices int) string { return `{driver: gpu.example.com, pool: ` + poolOf(n%slices) + `}` }},
	{name: "pool-cel", filter: func(n, slices int) string {
		return `{driver: gpu.example.com, pool: ` + poolOf(n%slices) + `, ` + oneIn(n) + `}`
	}},
	{name: "all", filter: func(int, int) string { return `{}` }},
	{name: "all-cel", filter: func(n, _ int) string { return `{` + oneIn(n) + `}` }, asksAll: true},
}

// oneIn is for one of the devices of each slice.
func oneIn(n int) string {
	return fmt.Sprintf(`selectors: [{cel: {expression: "device.attributes['gpu.example.com'].index == %d"}}]`, n%devicesASlice)
}

// BenchmarkPatches measures, with slices of 64 devices each: how long it takes per device
// until all are merged for the first time; and then how long until one slice is merged
// again whose driver wrote other devices, whose driver wrote the same ones, and which a
// patch gives other values.
func BenchmarkPatches(b *testing.B) {
	published := map[int][]*resourcev1.ResourceSlice{}
	for _, slices := range []int{1, 1000, 5000} {
		for i := range slices {
			published[slices] = append(published[slices], gpuSlice(i, poolOf(i)))
		}
		for _, patches := range []int{0, 1, 10, 100, 1000} {
			for _, f := range filters {
				if f.asksAll && patches*slices*devicesASlice > maxAsked || patches == 0 && f.name != "all" {
					continue
				}
				made := make([]*v1alpha1.ResourceSlicePatch, 0, patches)
				for n := range patches {
					made = append(made, slicePatch(b, "p"+strconv.Itoa(n), fmt.Sprintf(`{filter: %s, attributes: {x/a%d: {int: %d}}}`, f.filter(n, slices), n%20, n)))
				}
				size := fmt.Sprintf("slices=%d/patches=%d/%s", slices, patches, f.name)
				b.Run("all/"+size, func(b *testing.B) { benchmarkAll(b, published[slices], made) })
				benchmarkOne(b, size, published[slices], made)
			}
		}
	}
}

func benchmarkAll(b *testing.B, published []*resourcev1.ResourceSlice, patches []*v1alpha1.ResourceSlicePatch) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		v := sliceview.New()
		for _, s := range published {
			v.SetSlice(s)
		}
		for _, p := range patches {
			v.SetPatch(p)
		}
		b.StartTimer()
		v.List()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(published)*devicesASlice), "ns/device")
}

func benchmarkOne(b *testing.B, size string, published []*resourcev1.ResourceSlice, patches []*v1alpha1.ResourceSlicePatch) {
	b.Helper()
	var v *sliceview.View
	start := func() { // Only where one of them runs.
		if v != nil {
			return
		}
		v = sliceview.New()
		for _, s := range published {
			v.SetSlice(s)
		}
		for _, p := range patches {
			v.SetPatch(p)
		}
		v.List()
	}
	for name, written := range map[string]int{"same-devices": 0, "other-devices": 1} {
		b.Run(name+"/"+size, func(b *testing.B) {
			start()
			turns := []*resourcev1.ResourceSlice{gpuSlice(0, poolOf(0)), gpuSlice(written, poolOf(0))}
			turns[1].Name = turns[0].Name
			turn := 0
			b.ReportAllocs()
			for b.Loop() {
				turn++
				v.SetSlice(turns[turn%2])
				v.Get(turns[0].Name)
			}
		})
	}
	if len(patches) == 0 {
		return
	}
	b.Run("other-values/"+size, func(b *testing.B) {
		start()
		turns := []*v1alpha1.ResourceSlicePatch{patches[0], patches[0].DeepCopy()}
		turns[1].Spec.Devices.Attributes["x/a0"] = v1alpha1.NullableDeviceAttribute{IntValue: new(int64(-1))}
		turn := 0
		b.ReportAllocs()
		for b.Loop() {
			turn++
			v.SetPatch(turns[turn%2])
			v.Get(published[0].Name)
		}
	})
}
