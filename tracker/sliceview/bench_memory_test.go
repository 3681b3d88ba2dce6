package sliceview_test

import (
	"context"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
)

// layout is how slices and rules are laid out for a measurement.
type layout struct {
	name  string
	pool  func(slice int) string
	rules []*resourcev1.DeviceTaintRule
}

func layouts() []layout {
	one := func(int) string { return "cluster" }
	var many []*resourcev1.DeviceTaintRule
	for i := range 1000 {
		many = append(many, rule("rule-"+strconv.Itoa(i), only("gpu.example.com", poolOf(i), "gpu-"+strconv.Itoa(i)+"-7")))
	}
	return []layout{
		{"no-rule/pool-a-node", poolOf, nil},
		{"no-rule/one-pool", one, nil},
		{"rule-for-all/pool-a-node", poolOf, []*resourcev1.DeviceTaintRule{rule("r", every())}},
		{"rule-for-all/one-pool", one, []*resourcev1.DeviceTaintRule{rule("r", every())}},
		{"rule-a-slice/pool-a-node", poolOf, many},
	}
}

// BenchmarkMemory measures what is held above the objects of the informers when a
// handler has been told of everything: 1,000 slices of 64 devices.
func BenchmarkMemory(b *testing.B) {
	for _, layout := range layouts() {
		for _, arm := range arms {
			b.Run(layout.name+"/"+arm.name, func(b *testing.B) {
				for b.Loop() {
					b.ReportMetric(bytesADevice(b, arm, layout, 1000), "B/device")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// TestPM3 holds the ceilings of what is kept while rules touch nothing. It is not
// parallel: it looks at the heap.
func TestPM3(t *testing.T) {
	for _, layout := range layouts()[:2] {
		t.Run("PM3 "+layout.name, func(t *testing.T) {
			require.LessOrEqual(t, bytesADevice(t, arms[0], layout, 200), 64.0)
		})
	}
}

func bytesADevice(tb testing.TB, arm arm, layout layout, slices int) float64 {
	tb.Helper()
	w := &world{tb: tb, slices: newSliceSource(), rules: newRuleSource()}
	for i := range slices {
		require.NoError(tb, w.slices.GetIndexer().Add(gpuSlice(i, layout.pool(i))))
	}
	for _, r := range layout.rules {
		require.NoError(tb, w.rules.GetIndexer().Add(r))
	}
	before := settledHeap()

	ctx, cancel := context.WithCancel(tb.Context())
	subscribe, ended := arm.begin(ctx, w)
	for _, obj := range w.slices.GetIndexer().List() {
		w.slices.handlers[0].OnAdd(obj, true)
	}
	for _, r := range layout.rules {
		w.rules.handlers[0].OnAdd(r, true)
	}
	close(w.slices.synced)
	close(w.rules.synced)
	told := &counter{expected: slices, reached: make(chan struct{}, 1)}
	subscribe(told.handler())
	<-told.reached
	after := settledHeap()

	cancel()
	require.NoError(tb, <-ended)
	runtime.KeepAlive(w)
	return (float64(after) - float64(before)) / float64(slices*devicesASlice)
}

// settledHeap is what is alive. The second collection frees what the first one
// found to be finished.
func settledHeap() uint64 {
	runtime.GC()
	runtime.GC()
	return heap()
}
