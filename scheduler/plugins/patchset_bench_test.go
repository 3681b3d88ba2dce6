package plugins

import (
	"fmt"
	"testing"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// One slice of 64 devices: what a list costs for each slice that changed, and what a new
// patchesPatch costs for each that did not.
func BenchmarkApply(b *testing.B) {
	models := make([]string, 64)
	for i := range models {
		models[i] = "A100"
	}
	for _, count := range []int{1, 100, 1000} {
		for _, kind := range []string{"names", "expression"} {
			var patches []*v1alpha1.ResourceSlicePatch
			for i := range count {
				patches = append(patches, patchesPatch(fmt.Sprint("patch-", i), func(d *v1alpha1.DevicePatch) {
					pool := fmt.Sprint("pool-", i)
					d.Filter.Pool = &pool
					if kind == "expression" {
						d.Filter.Pool, d.Filter.Selectors = nil, ofModel(fmt.Sprint("model-", i))
					}
				}))
			}
			set := compilePatches(patches, noClass, nil)
			b.Run(fmt.Sprintf("patches=%d/by=%s/slice=changed", count, kind), func(b *testing.B) {
				published := patchesSlice("pool-0", models...)
				for b.Loop() {
					set.Apply(published, sliceview.Patched{})
				}
			})
			b.Run(fmt.Sprintf("patches=%d/by=%s/slice=same", count, kind), func(b *testing.B) {
				published := patchesSlice("pool-0", models...)
				earlier := set.Apply(published, sliceview.Patched{})
				for b.Loop() {
					set.Apply(published, earlier)
				}
			})
		}
	}
}
