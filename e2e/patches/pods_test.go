package patches

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// parallel is how many requests a test makes at once.
const parallel = 8

// run creates a pod and its claim, both of that name. The claim asks for one device of
// the driver, and for what its request says, which is YAML.
func (s *site) run(t *testing.T, name, request string) {
	t.Helper()
	require.NoError(t, s.create(t.Context(), name, s.claim(t, name, request)))
}

// runMany creates pods as run does, numbered from 0.
func (s *site) runMany(t *testing.T, name string, count int, request string) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(parallel)
	for i := range count {
		name := name + "-" + strconv.Itoa(i)
		claim := s.claim(t, name, request)
		group.Go(func() error { return s.create(t.Context(), name, claim) })
	}
	require.NoError(t, group.Wait())
}

func (s *site) claim(t *testing.T, name, request string) *resourcev1.ResourceClaim {
	t.Helper()
	claim := dra.Claim(name, s.driver, "")
	s.decode(t, request, claim.Spec.Devices.Requests[0].Exactly)
	return claim
}

func (s *site) create(ctx context.Context, name string, claim *resourcev1.ResourceClaim) error {
	if _, err := s.client.ResourceV1().ResourceClaims(s.namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create claim: %w", err)
	}
	pod := dra.Pod(name, name)
	pod.Spec.SchedulerName = s.scheduler
	if _, err := s.client.CoreV1().Pods(s.namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod: %w", err)
	}
	return nil
}

// decided are the pods that the scheduler has come to a result for.
type decided struct {
	// placed are the pods that have a node, with their devices as pool/device.
	placed map[string]string
	// waiting are those that have none and were tried, with what they wait for.
	waiting map[string]string
}

// decisions returns what was decided about the pods whose names begin so.
func (s *site) decisions(ctx context.Context, prefix string) (decided, error) {
	now := decided{placed: map[string]string{}, waiting: map[string]string{}}
	pods, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return now, fmt.Errorf("list pods: %w", err)
	}
	claims, err := s.client.ResourceV1().ResourceClaims(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return now, fmt.Errorf("list claims: %w", err)
	}
	allocated := map[string]string{}
	for i := range claims.Items {
		if allocation := claims.Items[i].Status.Allocation; allocation != nil {
			allocated[claims.Items[i].Name] = allocation.Devices.Results[0].Pool + "/" + allocation.Devices.Results[0].Device
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch {
		case !strings.HasPrefix(pod.Name, prefix) || pod.DeletionTimestamp != nil:
		case pod.Spec.NodeName != "":
			now.placed[pod.Name] = allocated[pod.Name]
		case allocated[pod.Name] == "":
			if reason := waitsFor(pod); reason != "" {
				now.waiting[pod.Name] = reason
			}
		}
	}
	return now, nil
}

// waitsFor is why the scheduler found no place for a pod, if it did not. An error, as
// of a claim's own expression, is no such reason.
func waitsFor(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.Message
		}
	}
	return ""
}

// requirePods waits until as many pods are placed and wait as are to, and returns the
// devices of the former, sorted.
func (s *site) requirePods(t *testing.T, prefix string, placed, waiting int) []string {
	t.Helper()
	var now decided
	eventually(t, "pods "+prefix, func(ctx context.Context) (err error) {
		if now, err = s.decisions(ctx, prefix); err != nil {
			return err
		}
		if len(now.placed) != placed || len(now.waiting) != waiting {
			return fmt.Errorf("%d have %v, and %d wait: %v; want %d and %d",
				len(now.placed), now.placed, len(now.waiting), now.waiting, placed, waiting)
		}
		return nil
	})
	return slices.Sorted(maps.Values(now.placed))
}

// requireWaiting waits until a pod was tried and has found no device.
func (s *site) requireWaiting(t *testing.T, pod string) {
	t.Helper()
	eventually(t, "pod "+pod, func(ctx context.Context) error {
		now, err := s.decisions(ctx, pod)
		if err == nil && now.waiting[pod] == "" {
			err = fmt.Errorf("it does not wait, but has %q", now.placed[pod])
		}
		return err
	})
}

// requireOn waits until a pod has a device.
func (s *site) requireOn(t *testing.T, pod, device string) {
	t.Helper()
	eventually(t, "pod "+pod, func(ctx context.Context) error {
		now, err := s.decisions(ctx, pod)
		if err == nil && now.placed[pod] != device {
			err = fmt.Errorf("it has %q, not %s, or waits: %s", now.placed[pod], device, now.waiting[pod])
		}
		return err
	})
}

// stillWaiting fails if one of the pods does not wait any more.
func (s *site) stillWaiting(t *testing.T, pods ...string) {
	t.Helper()
	now, err := s.decisions(t.Context(), "")
	require.NoError(t, err)
	for _, pod := range pods {
		require.NotContains(t, now.placed, pod)
	}
}
