package sliceview_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

const devicesASlice = 64

// gpuSlice is a slice of 64 devices like those of GPU drivers.
func gpuSlice(number int, pool string) *resourcev1.ResourceSlice {
	s := slice("slice-"+strconv.Itoa(number), in("gpu.example.com", pool))
	s.Spec.NodeName = new(pool)
	for i := range devicesASlice {
		name := fmt.Sprintf("gpu-%d-%d", number, i)
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name: name,
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"architecture": {StringValue: new("hopper")}, "driverVersion": {VersionValue: new("550.54.15")},
				"productName": {StringValue: new("example-gpu-80gb")}, "uuid": {StringValue: new("GPU-" + name)},
				"index": {IntValue: new(int64(i))}, "type": {StringValue: new("gpu")},
			},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: quantity.MustParse("80Gi")}},
		})
	}
	return s
}

func poolOf(number int) string { return "node-" + strconv.Itoa(number) }

// counter is a handler that says when it has been called as often as expected.
type counter struct {
	expected, seen int
	reached        chan struct{}
}

func (c *counter) handler() toolscache.ResourceEventHandler {
	count := func() {
		c.seen++
		if c.seen == c.expected {
			c.reached <- struct{}{}
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { count() }, UpdateFunc: func(any, any) { count() }, DeleteFunc: func(any) { count() },
	}
}

// after returns how long it takes until an event has led to so many calls of the
// handler.
func (c *counter) after(calls int, event func()) time.Duration {
	c.expected, c.seen = calls, 0
	begun := time.Now()
	event()
	<-c.reached
	return time.Since(begun)
}

// arm is one of the two that are compared. Begun, it can be subscribed to, and says
// that it has ended when the context has.
type arm struct {
	name  string
	begin func(ctx context.Context, w *world) (subscribe func(toolscache.ResourceEventHandler), ended <-chan error)
}

var arms = []arm{{"tollgate", beginOurs}, {"kubernetes", beginTheirs}}

func beginOurs(ctx context.Context, w *world) (subscribe func(toolscache.ResourceEventHandler), ended <-chan error) {
	w.view = sliceview.New()
	require.NoError(w.tb, w.view.Attach(w.slices, w.rules))
	end := make(chan error, 1)
	go func() { end <- w.view.Run(ctx) }()
	return func(handler toolscache.ResourceEventHandler) {
		_, err := w.view.AddEventHandler(handler)
		require.NoError(w.tb, err)
	}, end
}

func beginTheirs(ctx context.Context, w *world) (subscribe func(toolscache.ResourceEventHandler), ended <-chan error) {
	theirs := startPeer(ctx, w)
	end := make(chan error, 1)
	go func() {
		<-ctx.Done()
		theirs.Stop()
		end <- nil
	}()
	return func(handler toolscache.ResourceEventHandler) {
		_, err := theirs.AddEventHandler(handler)
		require.NoError(w.tb, err)
	}, end
}

// BenchmarkEvents measures how long it takes until the one handler has been told
// of everything that an event changes: one rule that comes and goes, for all
// devices, a pool or a device, and one slice that is written. Beside it there are
// rules for devices that do not exist. Every slice is the pool of a node.
func BenchmarkEvents(b *testing.B) {
	for _, size := range []struct{ rules, slices int }{{1, 1}, {1000, 1}, {1, 1000}, {1000, 1000}} {
		for _, change := range []struct {
			name     string
			selector *resourcev1.DeviceTaintSelector
			touches  int
		}{
			{"rule-all", every(), size.slices},
			{"rule-pool", only("gpu.example.com", poolOf(0), "-"), 1},
			{"rule-device", only("gpu.example.com", poolOf(0), "gpu-0-7"), 1},
			{"slice", nil, 1},
		} {
			for _, arm := range arms {
				b.Run(fmt.Sprintf("%s/rules=%d/slices=%d/%s", change.name, size.rules, size.slices, arm.name), func(b *testing.B) {
					w := &world{tb: b, slices: newSliceSource(), rules: newRuleSource()}
					c := w.populate(arm, size.rules, size.slices)
					if change.selector == nil {
						benchmarkSlice(b, w, c)
					} else {
						benchmarkRule(b, w, c, change.selector, change.touches)
					}
				})
			}
		}
	}
}

// populate fills the informers, and returns a handler that has been told.
func (w *world) populate(arm arm, rules, slices int) *counter {
	ctx, cancel := context.WithCancel(w.tb.Context())
	subscribe, ended := arm.begin(ctx, w)
	w.tb.Cleanup(func() {
		cancel()
		require.NoError(w.tb, <-ended)
	})
	c := &counter{expected: slices, reached: make(chan struct{}, 1)}
	for i := range slices {
		w.slices.set(w.tb, gpuSlice(i, poolOf(i)))
	}
	for i := range rules {
		w.rules.set(w.tb, rule("elsewhere-"+strconv.Itoa(i), only("nic.example.com", poolOf(i), "nic-0")))
	}
	close(w.slices.synced)
	close(w.rules.synced)
	subscribe(c.handler())
	<-c.reached
	return c
}

func benchmarkRule(b *testing.B, w *world, c *counter, selector *resourcev1.DeviceTaintSelector, touches int) {
	b.Helper()
	b.ReportAllocs()
	added := rule("the-rule", selector)
	var set, removed time.Duration
	for b.Loop() {
		set += c.after(touches, func() { w.rules.set(b, added) })
		removed += c.after(touches, func() { w.rules.remove(b, added.Name, false) })
	}
	b.ReportMetric(float64(set.Nanoseconds())/float64(b.N), "ns/set")
	b.ReportMetric(float64(removed.Nanoseconds())/float64(b.N), "ns/delete")
}

func benchmarkSlice(b *testing.B, w *world, c *counter) {
	b.Helper()
	b.ReportAllocs()
	written := []*resourcev1.ResourceSlice{gpuSlice(0, poolOf(0)), gpuSlice(0, poolOf(0))}
	turn := 0
	for b.Loop() {
		c.after(1, func() { w.slices.set(b, written[turn%2]) })
		turn++
	}
}
