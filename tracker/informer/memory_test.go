package informer

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// wire is an object as it comes from the API server: none of its strings is
// shared with another object.
type wire interface {
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

func decoded[T wire](tb testing.TB, from, into T) T {
	tb.Helper()
	require.NoError(tb, into.Unmarshal(encoded(tb, from)))
	return into
}

type nobody struct{}

func (nobody) PodsChanged([]tracker.Key) {}
func (nobody) NodeChanged(string)        {}
func (nobody) RuleChanged(string)        {}

// bytesEach returns what the heap holds for each of count objects, in the store of
// an informer and in a tracker together.
func bytesEach(tb testing.TB, count int, fill func(i int)) float64 {
	tb.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range count {
		fill(i)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	return float64(after.HeapAlloc-before.HeapAlloc) / float64(count)
}

// cluster is a tracker that is fed from the stores of informers.
type cluster struct {
	tracker *tracker.Tracker
	stores  []toolscache.Store
}

// fill puts count objects into a store of their own and into the tracker, and
// returns the bytes of each.
func (c *cluster) fill(tb testing.TB, count int, keep toolscache.TransformFunc, handler toolscache.ResourceEventHandler, object func(i int) any) float64 {
	tb.Helper()
	store := toolscache.NewStore(toolscache.DeletionHandlingMetaNamespaceKeyFunc)
	c.stores = append(c.stores, store)
	return bytesEach(tb, count, func(i int) {
		kept, err := keep(object(i))
		require.NoError(tb, err)
		require.NoError(tb, store.Add(kept))
		handler.OnAdd(kept, true)
	})
}

// subscribed is a source that has the handler that was added to it.
type subscribed struct {
	toolscache.ResourceEventHandler
}

func (s *subscribed) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	s.ResourceEventHandler = handler
	return nil, nil
}

// pods returns the handler of pods of a feed.
func (c *cluster) pods(tb testing.TB) toolscache.ResourceEventHandler {
	tb.Helper()
	pods := &subscribed{}
	require.NoError(tb, NewFeed(c.tracker, nobody{}, clock.RealClock{}).Attach(nil, pods))
	return pods
}

// TestMemory holds the line that large clusters pay for: PM1 asks for 1,024 bytes a
// pod at most, and PM2 for 600 MiB with 100,000 pods, 100,000 claims and 640,000
// devices.
func TestMemory(t *testing.T) {
	const objects, slices = 2_000, 40
	plain, stateful, devices := &cluster{tracker: tracker.New()}, &cluster{tracker: tracker.New()}, &cluster{tracker: tracker.New()}
	whole := plain.fill(t, objects, func(obj any) (any, error) { return obj, nil }, toolscache.ResourceEventHandlerFuncs{}, func(i int) any {
		return decoded(t, typical(i), &corev1.Pod{})
	})
	pod := plain.fill(t, objects, keepPods(), plain.pods(t), func(i int) any {
		return decoded(t, typical(i), &corev1.Pod{})
	})
	replica := stateful.fill(t, objects, keepPods(), stateful.pods(t), func(i int) any {
		p := typical(i)
		p.OwnerReferences[0].Kind = "StatefulSet"
		p.Labels["statefulset.kubernetes.io/pod-name"], p.Labels["apps.kubernetes.io/pod-index"] = p.Name, strconv.Itoa(i)
		return decoded(t, p, &corev1.Pod{})
	})
	devices.tracker.SetDevicesKnown(true)
	feed := NewDeviceFeed(devices.tracker, nobody{}, clock.RealClock{})
	each := devices.fill(t, slices, keepSlices(), feed.Slices(), func(i int) any {
		return decoded(t, published(i), &resourcev1.ResourceSlice{})
	}) / 128
	user := devices.fill(t, objects, keepPods(), devices.pods(t), func(i int) any {
		return decoded(t, claimant(i), &corev1.Pod{})
	})
	claim := devices.fill(t, objects, keepClaims(), feed.Claims(), func(i int) any {
		return decoded(t, claimed(i), &resourcev1.ResourceClaim{})
	})
	require.NotEmpty(t, devices.tracker.PodsUsing(device.ID{Driver: "gpu.example.com", Pool: "node-1", Name: "gpu-1"}))
	total := (100_000*user + 100_000*claim + 640_000*each) / (1 << 20)
	t.Logf("PM1 bytes a pod: %.0f whole, %.0f kept, %.0f with labels of its own; PM2 bytes a pod with a claim: %.0f, of the claim: %.0f, heap of all: %.0f MiB; PM3 bytes a device: %.0f",
		whole, pod, replica, user, claim, total, each)
	runtime.KeepAlive(plain)
	runtime.KeepAlive(stateful)
	runtime.KeepAlive(devices)
	require.Less(t, pod, 1024.0, "PM1")
	require.Less(t, pod, whole/6, "PM1")
	require.Less(t, replica, 1100.0, "labels of its own cost a pod what they hold")
	require.Less(t, total, 300.0, "PM2: the collector lets a heap grow to twice its size")
	require.Less(t, each, 120.0, "PM3")
}

// BenchmarkPM2 fills a cluster of the size that PM2 names and says what it takes:
// the heap after a collection, and what the process holds of the machine's memory.
func BenchmarkPM2(b *testing.B) {
	slice, pod, claim := encoded(b, published(1)), encoded(b, claimant(1)), encoded(b, claimed(1))
	for b.Loop() {
		c := &cluster{tracker: tracker.New()}
		c.tracker.SetDevicesKnown(true)
		feed := NewDeviceFeed(c.tracker, nobody{}, clock.RealClock{})
		c.fill(b, 5_000, keepSlices(), feed.Slices(), func(i int) any {
			s := &resourcev1.ResourceSlice{}
			require.NoError(b, s.Unmarshal(slice))
			s.Name, s.UID, s.Spec.Pool.Name = fmt.Sprintf("node-%d-gpu.example.com-x7k2p", i), uid("51ce", i), fmt.Sprintf("node-%d", i)
			return s
		})
		c.fill(b, 100_000, keepPods(), c.pods(b), func(i int) any {
			p := &corev1.Pod{}
			require.NoError(b, p.Unmarshal(pod))
			p.Name, p.UID, p.Spec.NodeName = fmt.Sprintf("web-7c5ddbdf54-%05d", i), uid("0a1b", i), fmt.Sprintf("node-%d", i%5000)
			p.Status.ResourceClaimStatuses[0].ResourceClaimName = new(p.Name + "-gpu-x7k2p")
			return p
		})
		c.fill(b, 100_000, keepClaims(), feed.Claims(), func(i int) any {
			r := &resourcev1.ResourceClaim{}
			require.NoError(b, r.Unmarshal(claim))
			owner, consumer, result := &r.OwnerReferences[0], &r.Status.ReservedFor[0], &r.Status.Allocation.Devices.Results[0]
			owner.Name, owner.UID = fmt.Sprintf("web-7c5ddbdf54-%05d", i), uid("0a1b", i)
			consumer.Name, consumer.UID = fmt.Sprintf("web-7c5ddbdf54-%05d", i), uid("0a1b", i)
			r.Name, r.UID, result.Pool = owner.Name+"-gpu-x7k2p", uid("c1a1", i), fmt.Sprintf("node-%d", i%5000)
			return r
		})
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		b.ReportMetric(float64(stats.HeapAlloc)/(1<<20), "MiB-heap")
		b.ReportMetric(float64(stats.Sys-stats.HeapReleased)/(1<<20), "MiB-held")
		runtime.KeepAlive(c)
	}
}

func encoded(tb testing.TB, object wire) []byte {
	tb.Helper()
	data, err := object.Marshal()
	require.NoError(tb, err)
	return data
}

func uid(prefix string, i int) types.UID {
	return types.UID(fmt.Sprintf("%sb2c3-0000-4000-8000-%012d", prefix, i))
}
