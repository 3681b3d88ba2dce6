package sliceview_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// What a patch would be meant for is what it is meant for once it is written.
func TestWouldIsWhatThenIs(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	d := patchDice{dice{rand.New(rand.NewPCG(seed, 0))}}
	some := 0
	for range 300 {
		o, v := newObjects(), sliceview.New()
		for range 20 {
			d.write(o)(v)
		}
		patch := d.patch()
		patch.Name = "asked-about"
		would, err := v.Would(t.Context(), patch)
		require.NoError(t, err)
		v.SetPatch(patch)
		report, ok := v.Report(patch.Name, 1<<20)
		require.True(t, ok)
		if len(report.FirstMatched) == 0 {
			require.Empty(t, would)
			continue
		}
		some++
		require.Equal(t, report.FirstMatched, would)
	}
	require.Greater(t, some, 30)
}

func TestWouldEndsWithItsContext(t *testing.T) {
	v := sliceview.New()
	v.SetSlice(slice("s", in("gpu.example.com", "p"), dev("a")))
	ctx, cancel := context.WithCancel(t.Context())
	ids, err := v.Would(ctx, &v1alpha1.ResourceSlicePatch{})
	require.NoError(t, err)
	require.Equal(t, []device.ID{{Driver: "gpu.example.com", Pool: "p", Name: "a"}}, ids)
	cancel()
	_, err = v.Would(ctx, &v1alpha1.ResourceSlicePatch{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestHolds(t *testing.T) {
	v := sliceview.New()
	patch := slicePatch(t, "p", `{attributes: {example.com/a: {int: 1}}}`)
	patch.UID = "u"
	require.False(t, v.Holds(patch))
	v.SetPatch(patch)
	require.True(t, v.Holds(patch))
	later := patch.DeepCopy()
	later.ResourceVersion, later.Generation, later.Spec.Publish = "2", 2, true
	require.True(t, v.Holds(later), "it does the same")
	later.Spec.Devices.Priority = 1
	require.False(t, v.Holds(later))
	another := patch.DeepCopy()
	another.UID = "v"
	require.False(t, v.Holds(another))
}

// What is left over from an earlier generation of a pool is not there to be tainted.
func TestOldGenerationsAreNotCounted(t *testing.T) {
	v := sliceview.New()
	v.SetSlice(slice("old", dev("a"), dev("b")))
	v.SetSlice(slice("new", generation(2), dev("b"), dev("c")))
	v.SetSlice(slice("other", in("d", "q"), dev("e")))
	patch := slicePatch(t, "p", `{attributes: {example.com/a: {int: 1}}}`)
	v.SetPatch(patch)
	want := []device.ID{{Driver: "d", Pool: "p", Name: "b"}, {Driver: "d", Pool: "p", Name: "c"}, {Driver: "d", Pool: "q", Name: "e"}}
	report, ok := v.Report("p", 8)
	require.True(t, ok)
	require.Equal(t, want, report.FirstMatched)
	require.Equal(t, 3, report.Matched)
	would, err := v.Would(t.Context(), patch)
	require.NoError(t, err)
	require.Equal(t, want, would)
}
