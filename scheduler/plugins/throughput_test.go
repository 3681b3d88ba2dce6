package plugins

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
)

const devicesANode = 8

// BenchmarkThroughput schedules pods that each need a device, with the stock profile and
// with the one in deploy/ in turns, without patches. Ratio is how many pods the latter
// schedules for each of the former in the same time: below 1 it is slower; cpu-ratio is that
// for time of processors, which other programs on the machine do not change. All but
// the API server is real.
func BenchmarkThroughput(b *testing.B) {
	for _, size := range []struct{ nodes, pods int }{{10, 80}, {100, 200}, {500, 200}} {
		b.Run(fmt.Sprintf("nodes=%d/pods=%d", size.nodes, size.pods), func(b *testing.B) {
			var stock, patched spent
			for b.Loop() {
				// Whoever comes second finds a warm machine.
				stock = stock.plus(scheduled(b, setup{profiles: stockProfiles, unpatched: true}, size.nodes, size.pods))
				patched = patched.plus(scheduled(b, setup{profiles: shipped(b, "default-profile.yaml"), compile: compilePatches}, size.nodes, size.pods))
				patched = patched.plus(scheduled(b, setup{profiles: shipped(b, "default-profile.yaml"), compile: compilePatches}, size.nodes, size.pods))
				stock = stock.plus(scheduled(b, setup{profiles: stockProfiles, unpatched: true}, size.nodes, size.pods))
			}
			pods := float64(2 * b.N * size.pods)
			b.ReportMetric(pods/stock.time.Seconds(), "stock-pods/s")
			b.ReportMetric(pods/patched.time.Seconds(), "patched-pods/s")
			b.ReportMetric(stock.time.Seconds()/patched.time.Seconds(), "ratio")
			b.ReportMetric(stock.cpu.Seconds()/patched.cpu.Seconds(), "cpu-ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// spent is what scheduling took.
type spent struct {
	time, cpu time.Duration
}

func (s spent) plus(other spent) spent {
	return spent{time: s.time + other.time, cpu: s.cpu + other.cpu}
}

// cpu is what this process has used of processors so far.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// scheduled returns what it takes until all pods are bound.
func scheduled(tb testing.TB, s setup, nodes, pods int) spent {
	tb.Helper()
	s.objects = []kruntime.Object{deviceClass()}
	for i := range nodes {
		name := fmt.Sprint("node-", i)
		slice := sliceOf(name, "A100")
		for len(slice.Spec.Devices) < devicesANode {
			device := *slice.Spec.Devices[0].DeepCopy()
			device.Name = fmt.Sprint("gpu-", len(slice.Spec.Devices))
			slice.Spec.Devices = append(slice.Spec.Devices, device)
		}
		s.objects = append(s.objects, node(name), slice)
	}
	for i := range pods {
		pod, claim := wanting(fmt.Sprint("pod-", i), "A100")
		s.objects = append(s.objects, claim, pod)
	}
	h := ready(tb, s)
	var bound sync.WaitGroup
	bound.Add(pods)
	h.bound = bound.Done
	runtime.GC()
	start, used := time.Now(), cpu(tb)
	stop := h.run()
	bound.Wait()
	took := spent{time: time.Since(start), cpu: cpu(tb) - used}
	stop()
	return took
}

// What the plugins cost where there are no patches: nothing is copied, however many
// slices there are.
func TestAListWithoutPatchesIsTheSchedulersOwn(t *testing.T) {
	objects := []kruntime.Object{deviceClass()}
	for i := range 100 {
		objects = append(objects, sliceOf(fmt.Sprint("node-", i), "A100"))
	}
	h := ready(t, setup{objects: objects, compile: compilePatches})
	defer h.run()()
	handle, err := h.shared.handle(h.ctx, h.scheduler.Profiles["default-scheduler"], false)
	require.NoError(t, err)
	// What the rest of the process allocates meanwhile is counted as well, and can only add.
	list := func(slices func() ([]*resourcev1.ResourceSlice, error)) float64 {
		least := math.Inf(1)
		for range 10 {
			least = min(least, testing.AllocsPerRun(20, func() {
				if _, err := slices(); err != nil {
					t.Error(err)
				}
			}))
		}
		return least
	}
	ours := list(handle.SharedDRAManager().ResourceSlices().ListWithDeviceTaintRules)
	stock := list(h.scheduler.Profiles["default-scheduler"].SharedDRAManager().ResourceSlices().ListWithDeviceTaintRules)
	require.LessOrEqual(t, ours, stock)
}
