package sliceview_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// ofGPUs reads what tells each device from all others.
const ofGPUs = `{driver: gpu.example.com, selectors: [{cel: {expression: "device.attributes['gpu.example.com'].uuid.startsWith('GPU')"}}]}`

// TestPatchesCost counts allocations, which do not depend on the machine: what an event
// costs must not grow with the patches and slices that it does not touch.
func TestPatchesCost(t *testing.T) {
	costs := func(patches, slices int) map[string]float64 {
		v := sliceview.New()
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
			"other devices":        writings(v, many(8, poolOf(0))...),
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

// many returns so many slices that no answer is remembered until one comes again.
func many(count int, pool string) []*resourcev1.ResourceSlice {
	var list []*resourcev1.ResourceSlice
	for i := range count {
		list = append(list, gpuSlice(i, pool))
	}
	return list
}

// comings counts what a patch costs that comes and goes.
func comings(v *sliceview.View, p *v1alpha1.ResourceSlicePatch) float64 {
	return testing.AllocsPerRun(20, func() {
		v.SetPatch(p)
		v.Get("slice-0")
		v.DeletePatch(p.Name)
		v.Get("slice-0")
	})
}

// writings counts what a slice costs that is written in turns.
func writings(v *sliceview.View, slices ...*resourcev1.ResourceSlice) float64 {
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
	v := sliceview.New()
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
	require.Less(t, asked(ofGPUs)-plain, 1000.0)
}

// An expression that explodes is given up for each slice, wherever it got to, and the
// report says so.
func TestAPatchThatExplodes(t *testing.T) {
	const nines = `[1,2,3,4,5,6,7,8,9]`
	const explodes = `device.attributes[\"gpu.example.com\"].uuid != \"\" && ` + nines + `.all(a, ` + nines + `.all(b, ` + nines + `.all(c, a + b + c > 0)))`
	const slices = 20
	told := func(order []int) (sliceview.Report, *sliceview.View) {
		v := sliceview.New()
		v.SetPatch(slicePatch(t, "p", `{filter: {selectors: [{cel: {expression: "`+explodes+`"}}]}, taints: [{key: a, effect: NoSchedule}]}`))
		for _, i := range order {
			v.SetSlice(gpuSlice(i, poolOf(i)))
			v.List()
		}
		report, _ := v.Report("p", 1)
		return report, v
	}
	order := rand.Perm(slices)
	report, v := told(order)
	require.Equal(t, slices*devicesASlice, report.Matched+report.Failed)
	require.Zero(t, report.Matched%slices, "not as many in each slice")
	require.Positive(t, report.Matched)
	require.Less(t, report.Matched, slices*devicesASlice/8)
	require.Contains(t, report.FirstFailed[0].Message, "selectors[0]: given up: the devices of its slice that come before it by name cost the 20000")
	again, other := told(rand.Perm(slices))
	require.Equal(t, report, again)
	require.Equal(t, detailed(v.List()), detailed(other.List()))

	// A slice more costs what one costs.
	one := writings(v, gpuSlice(0, poolOf(0)), gpuSlice(1000, poolOf(0)), gpuSlice(1001, poolOf(0)), gpuSlice(1002, poolOf(0)))
	require.Less(t, one, 100_000.0)
}
