package sliceview_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// TestPT1 counts allocations, which do not depend on the machine: what an event
// costs must not grow with the rules and slices that it does not touch. What is
// looked at without allocating, only BenchmarkEvents shows.
func TestPT1(t *testing.T) {
	costs := func(rules, slices int) map[string]float64 {
		v := sliceview.New()
		for i := range slices {
			v.SetSlice(gpuSlice(i, poolOf(i)))
		}
		for i := range rules {
			v.SetRule(rule("pool-"+strconv.Itoa(i), only("nic.example.com", poolOf(i), "-")))
			v.SetRule(rule("device-"+strconv.Itoa(i), only("gpu.example.com", "other-"+strconv.Itoa(i), "gpu-0-0")))
		}
		v.List()
		found := map[string]float64{}
		for name, selector := range map[string]*resourcev1.DeviceTaintSelector{
			"a rule for a pool":   only("gpu.example.com", poolOf(0), "-"),
			"a rule for a device": only("gpu.example.com", poolOf(0), "gpu-0-7"),
			"a rule for nothing":  only("gpu.example.com", poolOf(0), "gpu-1-7"),
		} {
			added := rule("added", selector)
			found[name] = testing.AllocsPerRun(20, func() {
				v.SetRule(added)
				v.Get("slice-0")
				v.DeleteRule("added")
				v.Get("slice-0")
			})
		}
		written := []*resourcev1.ResourceSlice{gpuSlice(0, poolOf(0)), gpuSlice(0, poolOf(0))}
		turn := 0
		found["a slice"] = testing.AllocsPerRun(20, func() {
			turn++
			v.SetSlice(written[turn%2])
			v.Get("slice-0")
		})
		return found
	}
	few := costs(1, 1)
	for _, size := range []struct{ rules, slices int }{{1000, 1}, {1, 200}, {1000, 200}} {
		t.Run("PT1 "+strconv.Itoa(size.rules)+" rules and "+strconv.Itoa(size.slices)+" slices cost what one of each does", func(t *testing.T) {
			require.Equal(t, few, costs(size.rules, size.slices))
		})
	}
}

// TestSharedTaints holds what keeps a thousand rules for every device affordable.
func TestSharedTaints(t *testing.T) {
	t.Parallel()
	v := sliceview.New()
	for i := range 3 {
		v.SetSlice(slice("s"+strconv.Itoa(i), in("d", poolOf(i)), dev("a"), dev("b"), dev("c", taint("own"))))
	}
	v.SetRule(rule("r", every()))
	v.SetRule(rule("q", only("-", poolOf(2), "-")))
	all := v.List()
	first := func(slice, device int) *resourcev1.DeviceTaint { return &all[slice].Spec.Devices[device].Taints[0] }
	require.Same(t, first(0, 0), first(0, 1))
	require.Same(t, first(0, 0), first(1, 0))
	require.NotSame(t, first(0, 0), first(2, 0))
	require.Same(t, first(2, 0), first(2, 1))
	require.NotSame(t, first(0, 0), first(0, 2))
	require.Equal(t, len(all[0].Spec.Devices[0].Taints), cap(all[0].Spec.Devices[0].Taints))
}

// TestNotMergedAgain holds that what cannot change a slice leaves the merged one
// as it is.
func TestNotMergedAgain(t *testing.T) {
	t.Parallel()
	v := sliceview.New()
	s := slice("s", dev("a"))
	v.SetSlice(s)
	v.SetRule(rule("r", every()))
	before, _ := v.Get("s")
	require.NotSame(t, s, before)
	for name, event := range map[string]func(){
		"a resync":                  func() { v.SetSlice(s) },
		"a rule with a new status":  func() { v.SetRule(rule("r", every())) },
		"a rule for another pool":   func() { v.SetRule(rule("q", only("d", "q", "-"))) },
		"a rule for another device": func() { v.SetRule(rule("p", only("d", "p", "b"))) },
		"a rule without a selector": func() { v.SetRule(rule("o", nil)) },
		"a rule that is not there":  func() { v.DeleteRule("n") },
		"another slice":             func() { v.SetSlice(slice("t", dev("a"))) },
		"a slice that is not there": func() { v.DeleteSlice("u") },
	} {
		event()
		after, _ := v.Get("s")
		require.Same(t, before, after, name)
	}
}
