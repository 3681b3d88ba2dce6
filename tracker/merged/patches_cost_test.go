package merged_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/merged"
)

const ofGPUs = `{driver: gpu.example.com, selectors: [{cel: {expression: "device.attributes['gpu.example.com'].type == 'gpu'"}}]}`

// TestPatchesCost counts allocations, which do not depend on the machine: what an event
// costs must not grow with the patches and slices that it does not touch.
func TestPatchesCost(t *testing.T) {
	costs := func(patches, slices int) map[string]float64 {
		v := merged.New()
		for i := range slices {
			v.SetSlice(gpuSlice(i, poolOf(i)))
		}
		for i := range patches {
			v.SetPatch(slicePatch(t, "elsewhere-"+strconv.Itoa(i), `{filter: {driver: nic.example.com, pool: `+poolOf(i)+`}, attributes: {x/a: {int: 1}}}`))
			v.SetPatch(slicePatch(t, "device-"+strconv.Itoa(i), `{filter: {driver: gpu.example.com, pool: other-`+strconv.Itoa(i)+`, device: gpu-0}, attributes: {x/a: {int: 1}}}`))
		}
		v.SetPatch(slicePatch(t, "gpus", `{filter: `+ofGPUs+`, attributes: {x/a: {int: 1}}}`))
		v.List()
		return map[string]float64{
			"a patch for a pool":   comings(v, slicePatch(t, "added", `{filter: {driver: gpu.example.com, pool: `+poolOf(0)+`}, attributes: {x/b: {int: 1}}}`)),
			"a patch for a device": comings(v, slicePatch(t, "added", `{filter: {driver: gpu.example.com, pool: `+poolOf(0)+`, device: gpu-0-7}, attributes: {x/b: {int: 1}}}`)),
			"a slice":              writings(v, gpuSlice(0, poolOf(0)), gpuSlice(0, poolOf(0))),
			"other devices":        writings(v, gpuSlice(0, poolOf(0)), gpuSlice(1, poolOf(0))),
		}
	}
	few := costs(1, 1)
	require.Less(t, few["a slice"], 1000.0, "devices that are the same are asked about again")
	require.Greater(t, few["other devices"], 1000.0, "nothing is asked")
	for _, size := range []struct{ patches, slices int }{{1000, 1}, {1, 200}, {1000, 200}} {
		t.Run(strconv.Itoa(size.patches)+" patches and "+strconv.Itoa(size.slices)+" slices cost what one of each does", func(t *testing.T) {
			many := costs(size.patches, size.slices)
			for name := range few {
				// The pools of CEL are emptied now and then.
				require.InEpsilon(t, few[name], many[name], 0.05, name)
			}
		})
	}
}

// comings counts what a patch costs that comes and goes.
func comings(v *merged.View, p *v1alpha1.ResourceSlicePatch) float64 {
	return testing.AllocsPerRun(20, func() {
		v.SetPatch(p)
		v.Get("slice-0")
		v.DeletePatch(p.Name)
		v.Get("slice-0")
	})
}

// writings counts what a slice costs that is written in turns.
func writings(v *merged.View, slices ...*resourcev1.ResourceSlice) float64 {
	for _, s := range slices {
		s.Name = "slice-0"
	}
	turn := 0
	return testing.AllocsPerRun(20, func() {
		turn++
		v.SetSlice(slices[turn%len(slices)])
		v.Get("slice-0")
	})
}

// A patch that gives other values to the devices that it was meant for asks nothing, and
// neither does a rule.
func TestOtherValuesAskNothing(t *testing.T) {
	v := merged.New()
	for i := range 10 {
		v.SetSlice(gpuSlice(i, poolOf(i)))
	}
	asked := func(filter string) float64 {
		turns := []*v1alpha1.ResourceSlicePatch{
			slicePatch(t, "p", `{filter: `+filter+`, attributes: {x/a: {int: 1}}}`), slicePatch(t, "p", `{filter: `+filter+`, attributes: {x/a: {int: 2}}}`),
		}
		turn := 0
		return testing.AllocsPerRun(10, func() {
			turn++
			v.SetPatch(turns[turn%2])
			v.List()
		})
	}
	plain := asked(`{driver: gpu.example.com}`)
	// Compiling an expression to see whether it is valid costs some thousand.
	require.Less(t, asked(ofGPUs)-plain, 10_000.0)
}
