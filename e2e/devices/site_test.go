package devices

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

const (
	// patience is far above what anything here takes.
	patience = 2 * time.Minute
	// interval is how often it is looked whether something has come about.
	interval = 100 * time.Millisecond
	// slack is how much later than its time a pod may leave: a toleration is counted
	// from the end of the second in which the taint came, and a machine that runs a
	// whole control plane beside the test is not quick.
	slack = 20 * time.Second
	// parallel is how many requests a test makes at once.
	parallel = 16

	noExecute = resourcev1.DeviceTaintEffectNoExecute
	// key is that of the taints here.
	key = "e2e.example.com/fault"
)

// site is where one test works: a namespace, and a driver with a class.
type site struct {
	plane     *plane
	client    kubernetes.Interface
	namespace string
	driver    string
	// version is that in which rules are written.
	version string
	// led is how often Tollgate came to lead, by the time that the evictions of the test
	// begin: it is to lead for as long as they last.
	led int
}

// newNamespace returns a site that has no devices.
func newNamespace(t *testing.T, on *plane) *site {
	t.Helper()
	client, err := kubernetes.NewForConfig(on.restConfig())
	require.NoError(t, err)
	namespace, err := on.cp.CreateNamespace(t.Context(), "devices-")
	require.NoError(t, err)
	return &site{
		plane: on, client: client, namespace: namespace, driver: namespace + ".example.com",
		version: resourcev1.SchemeGroupVersion.Version, led: on.waitLeads(t),
	}
}

func newSite(t *testing.T, on *plane) *site {
	t.Helper()
	s := newNamespace(t, on)
	_, err := s.client.ResourceV1().DeviceClasses().Create(t.Context(), dra.Class(s.driver), metav1.CreateOptions{})
	require.NoError(t, err)
	return s
}

// eventually returns when check does without an error, and fails the test with the
// last one if that takes too long.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(t.Context(), interval, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}

// publish publishes a pool with devices.
func (s *site) publish(t *testing.T, pool string, devices ...resourcev1.Device) {
	t.Helper()
	_, err := s.client.ResourceV1().ResourceSlices().Create(t.Context(), dra.Slice(s.driver, pool, devices...), metav1.CreateOptions{})
	require.NoError(t, err)
}

// use is a pod that is to have a device of a pool by the claim of that name. The
// test allocates it, and puts the pod on a node.
type use struct {
	pod, claim, pool, device string
	tolerations              []resourcev1.DeviceToleration
}

// place creates pods and claims. A claim that several have is reserved for all.
func (s *site) place(t *testing.T, uses ...use) map[string]*corev1.Pod {
	t.Helper()
	created := make([]*corev1.Pod, len(uses))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, u := range uses {
		group.Go(func() (err error) {
			pod := dra.Pod(u.pod, u.claim)
			pod.Spec.NodeName = controlplane.NodeName(i%s.plane.cp.Nodes() + 1)
			created[i], err = s.client.CoreV1().Pods(s.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(t, group.Wait())
	pods, claims := map[string]*corev1.Pod{}, map[string]*resourcev1.ResourceClaim{}
	for i, u := range uses {
		pods[u.pod] = created[i]
		claim := claims[u.claim]
		if claim == nil {
			claim = dra.Claim(u.claim, s.driver, u.device, u.tolerations...)
			claim.Finalizers = []string{resourcev1.Finalizer}
			claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
				Results: []resourcev1.DeviceRequestAllocationResult{{
					Request: "device", Driver: s.driver, Pool: u.pool, Device: u.device, Tolerations: u.tolerations,
				}},
			}}
			claims[u.claim] = claim
		}
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{
			Resource: "pods", Name: u.pod, UID: created[i].UID,
		})
	}
	for _, claim := range claims {
		group.Go(func() error { return s.allocate(t.Context(), claim) })
	}
	require.NoError(t, group.Wait())
	return pods
}

// allocate creates a claim and gives it the status that it has.
func (s *site) allocate(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	client := s.client.ResourceV1().ResourceClaims(s.namespace)
	status := claim.Status
	claim, err := client.Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create claim: %w", err)
	}
	claim.Status = status
	if _, err := client.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("allocate claim: %w", err)
	}
	return nil
}

// alive returns the pods that are not on their way out, by name.
func (s *site) alive(ctx context.Context) (map[string]types.UID, error) {
	list, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	pods := map[string]types.UID{}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			pods[list.Items[i].Name] = list.Items[i].UID
		}
	}
	return pods, nil
}

// waitAlive waits until as many pods are left as are wanted, and then fails unless
// each is the one it was.
func (s *site) waitAlive(t *testing.T, want map[string]*corev1.Pod) {
	t.Helper()
	eventually(t, "pods left", func(ctx context.Context) error {
		pods, err := s.alive(ctx)
		if err == nil && len(pods) != len(want) {
			err = fmt.Errorf("%d pods are left, not %d", len(pods), len(want))
		}
		return err
	})
	pods, err := s.alive(t.Context())
	require.NoError(t, err)
	for name, pod := range want {
		require.Equal(t, pod.UID, pods[name], name)
	}
}

// asked returns what Tollgate asked about the pods of the namespace.
func (s *site) asked(t *testing.T) []auditv1.Event {
	t.Helper()
	events, err := s.plane.audit.Read(func(event *auditv1.Event) bool {
		return event.ObjectRef.Namespace == s.namespace && event.ObjectRef.Resource == "pods"
	})
	require.NoError(t, err)
	return events
}

// deletions returns when pods were deleted, by name, and fails if one was twice.
func (s *site) deletions(t *testing.T) map[string]time.Time {
	t.Helper()
	times := map[string]time.Time{}
	for _, deletion := range auditlog.Deletions(s.asked(t)) {
		require.NotContains(t, times, deletion.Name, "deleted twice")
		times[deletion.Name] = deletion.At
	}
	return times
}

// waitDeletions returns as deletions does, once there are as many: the log may be a
// moment behind what is seen of the pods.
func (s *site) waitDeletions(t *testing.T, want int) map[string]time.Time {
	t.Helper()
	eventually(t, "deletions in the audit log", func(context.Context) error {
		if n := len(auditlog.Deletions(s.asked(t))); n < want {
			return fmt.Errorf("%d of %d", n, want)
		}
		return nil
	})
	times := s.deletions(t)
	require.Len(t, times, want)
	return times
}
