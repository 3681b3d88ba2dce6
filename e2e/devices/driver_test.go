package devices

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/retry"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// syncDelay is how soon a driver looks again at what it published after a change
// of it. It is short here, so that an endless exchange of updates would be seen.
const syncDelay = 100 * time.Millisecond

// runDriver publishes devices as drivers do, by Kubernetes' own library for them.
func (s *site) runDriver(t *testing.T, devices ...resourcev1.Device) *resourceslice.Controller {
	t.Helper()
	controller, err := resourceslice.StartController(t.Context(), resourceslice.Options{
		DriverName: s.driver,
		KubeClient: s.client,
		Resources:  resources(devices...),
		SyncDelay:  new(syncDelay),
		ErrorHandler: func(_ context.Context, err error, msg string) {
			// While it stops, the requests of the driver are cut off.
			if t.Context().Err() == nil {
				t.Errorf("driver: %s: %v", msg, err)
			}
		},
	})
	require.NoError(t, err)
	t.Cleanup(controller.Stop)
	return controller
}

func resources(devices ...resourcev1.Device) *resourceslice.DriverResources {
	return &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		"pool": {AllNodes: true, Slices: []resourceslice.Slice{{Devices: devices}}},
	}}
}

// published waits for the driver's slice to be as wanted, and returns it.
func (s *site) published(t *testing.T, what string, wanted func(*resourcev1.ResourceSlice) bool) *resourcev1.ResourceSlice {
	t.Helper()
	var slice *resourcev1.ResourceSlice
	eventually(t, what, func(ctx context.Context) error {
		list, err := s.slices(ctx)
		if err != nil {
			return err
		}
		if len(list) != 1 || !wanted(&list[0]) {
			return fmt.Errorf("not in %v", list)
		}
		slice = &list[0]
		return nil
	})
	return slice
}

func (s *site) slices(ctx context.Context) ([]resourcev1.ResourceSlice, error) {
	list, err := s.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, s.driver).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list slices: %w", err)
	}
	return list.Items, nil
}

// requireQuiet fails if a slice changes while a driver looks at it ten times over.
func (s *site) requireQuiet(t *testing.T, slice *resourcev1.ResourceSlice) {
	t.Helper()
	watch, err := s.client.ResourceV1().ResourceSlices().Watch(t.Context(), metav1.ListOptions{
		ResourceVersion: slice.ResourceVersion,
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, slice.Name).String(),
	})
	require.NoError(t, err)
	defer watch.Stop()
	timer := time.NewTimer(10 * syncDelay)
	defer timer.Stop()
	select {
	case event := <-watch.ResultChan():
		require.Failf(t, "the slice goes on changing", "%v after %v", event, slice)
	case <-timer.C:
	}
}

func tainted(device string, more ...resourcev1.DeviceTaint) resourcev1.Device {
	return dra.Device(device, append([]resourcev1.DeviceTaint{dra.Taint(key, "", noExecute)}, more...)...)
}

// timeOf returns since when a device of a slice has the taint of the tests.
func timeOf(slice *resourcev1.ResourceSlice, device string) *metav1.Time {
	for i := range slice.Spec.Devices {
		if slice.Spec.Devices[i].Name != device {
			continue
		}
		for _, taint := range slice.Spec.Devices[i].Taints {
			if taint.Key == key {
				return taint.TimeAdded
			}
		}
	}
	return nil
}

func TestTaintOfADriverKeepsItsTimeTR16(t *testing.T) {
	t.Parallel()
	const seconds = 14
	s := newSite(t, shared)
	driver := s.runDriver(t, dra.Device("a"), dra.Device("b"))
	s.published(t, "devices", func(slice *resourcev1.ResourceSlice) bool { return len(slice.Spec.Devices) == 2 })
	pods := s.place(t,
		use{pod: "a", claim: "a", pool: "pool", device: "a", tolerations: []resourcev1.DeviceToleration{dra.TolerateFor(key, seconds)}},
		use{pod: "b", claim: "b", pool: "pool", device: "b"},
	)

	driver.Update(resources(tainted("a"), dra.Device("b")))
	slice := s.published(t, "taint", func(slice *resourcev1.ResourceSlice) bool { return timeOf(slice, "a") != nil })
	added := *timeOf(slice, "a")
	s.plane.waitMetric(t, 1, "tollgate_tainted_devices", "driver", s.driver, "effect", string(noExecute))
	s.requireQuiet(t, slice)
	unchanged := func(slice *resourcev1.ResourceSlice) {
		t.Helper()
		require.Equal(t, added.Time, timeOf(slice, "a").Time)
		s.requireQuiet(t, slice)
	}
	// The clock must have moved on, or a new time would be the old one.
	eventually(t, "another second", func(context.Context) error {
		if time.Since(added.Time) < 2*time.Second {
			return errors.New("not yet")
		}
		return nil
	})

	// The driver adds a device, and has no time to give to the taint.
	driver.Update(resources(tainted("a"), dra.Device("b"), dra.Device("c")))
	unchanged(s.published(t, "another device", func(slice *resourcev1.ResourceSlice) bool { return len(slice.Spec.Devices) == 3 }))

	// It is started anew, and publishes one more taint.
	driver.Stop()
	other := dra.Taint("e2e.example.com/other", "", resourcev1.DeviceTaintEffectNoSchedule)
	driver = s.runDriver(t, tainted("a", other), dra.Device("b"), dra.Device("c"))
	slice = s.published(t, "another taint", func(slice *resourcev1.ResourceSlice) bool {
		return len(slice.Spec.Devices[0].Taints) == 2
	})
	unchanged(slice)
	require.Equal(t, int64(1), driver.GetStats().NumUpdates, "nobody changes what it writes")
	driver.Stop()

	// A driver without the library writes what it knows, which is not the time.
	client := s.client.ResourceV1().ResourceSlices()
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := client.Get(t.Context(), slice.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Spec.Devices = []resourcev1.Device{dra.Device("b"), tainted("a"), dra.Device("c")}
		slice, err = client.Update(t.Context(), current, metav1.UpdateOptions{})
		return err
	}))
	unchanged(slice)

	s.waitAlive(t, map[string]*corev1.Pod{"b": pods["b"]})
	late := s.waitDeletions(t, 1)["a"].Sub(added.Add(seconds * time.Second))
	require.GreaterOrEqual(t, late, time.Duration(0), "it left early")
	require.Less(t, late, slack)
}
