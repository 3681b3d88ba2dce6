package patches

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// barrier tells when the scheduler has seen all patches that were written before. It is
// a patch that numbers devices, and pods that ask for the number: the scheduler learns
// of patches in the order of their writes, and obeys them all at once.
var barrier struct {
	site

	lock   sync.Mutex // guards what follows
	number int
}

// startBarrier publishes the devices of the barrier.
func startBarrier(ctx context.Context) error {
	typed, patches, err := clients()
	if err != nil {
		return err
	}
	namespace, err := shared.CreateNamespace(ctx, "barrier-")
	if err != nil {
		return err
	}
	barrier.site = site{client: typed, patches: patches, namespace: namespace, driver: namespace + ".example.com"}
	if _, err := typed.ResourceV1().DeviceClasses().Create(ctx, dra.Class(barrier.driver), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create class: %w", err)
	}
	var devices []resourcev1.Device
	for i := range resourcev1.ResourceSliceMaxDevices {
		devices = append(devices, dra.Device("d"+strconv.Itoa(i)))
	}
	if _, err := typed.ResourceV1().ResourceSlices().Create(ctx, dra.Slice(barrier.driver, "pool", devices...), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("publish devices: %w", err)
	}
	return barrier.begin(ctx)
}

// begin creates the patch, without a number.
func (s *site) begin(ctx context.Context) error {
	patch := &v1alpha1.ResourceSlicePatch{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: v1alpha1.ResourceSlicePatchSpec{Devices: v1alpha1.DevicePatch{
			Filter: &v1alpha1.DevicePatchFilter{Driver: &s.driver},
		}},
	}
	if err := s.patches.Create(ctx, patch); err != nil {
		return fmt.Errorf("create patch: %w", err)
	}
	return nil
}

// settle returns when the scheduler obeys every patch as it was when settle was called.
// The barrier's own pod is of the default scheduler unless the site's are not.
func (s *site) settle(t *testing.T) {
	t.Helper()
	number := nextNumber(t)
	b := barrier.site
	b.scheduler = s.scheduler
	pod := "number-" + strconv.Itoa(number)
	b.run(t, pod, `selectors: [{cel: {expression: 'device.attributes["DRIVER"].?number.orValue(0) >= `+strconv.Itoa(number)+`'}}]`)
	eventually(t, "the scheduler obeys the patches", func(ctx context.Context) error {
		now, err := b.decisions(ctx, pod)
		if err == nil && now.placed[pod] == "" {
			err = fmt.Errorf("pod %s waits: %s", pod, now.waiting[pod])
		}
		return err
	})
	require.NoError(t, b.client.CoreV1().Pods(b.namespace).Delete(t.Context(), pod, metav1.DeleteOptions{}))
	require.NoError(t, b.client.ResourceV1().ResourceClaims(b.namespace).Delete(t.Context(), pod, metav1.DeleteOptions{}))
}

// nextNumber writes the next number into the patch.
func nextNumber(t *testing.T) int {
	t.Helper()
	barrier.lock.Lock()
	defer barrier.lock.Unlock()
	barrier.number++
	require.NoError(t, barrier.edit(t.Context(), barrier.namespace, func(patch *v1alpha1.ResourceSlicePatch) {
		patch.Spec.Devices.Attributes = map[resourcev1.QualifiedName]v1alpha1.NullableDeviceAttribute{
			resourcev1.QualifiedName(barrier.driver + "/number"): {IntValue: new(int64(barrier.number))},
		}
	}))
	return barrier.number
}
