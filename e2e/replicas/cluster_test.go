package replicas

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

const (
	// patience is far above what anything here takes.
	patience = 2 * time.Minute
	// interval is how often it is looked whether something has come about.
	interval = 50 * time.Millisecond
	// parallel is how many requests a test makes at once.
	parallel = 16
	// taintKey is the taint that the tests put on nodes.
	taintKey = "replicas.example.com/drain"
)

func clientOf(t *testing.T) kubernetes.Interface {
	t.Helper()
	config := shared.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
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

// sleepUntil lets time pass that a test is about.
func sleepUntil(t *testing.T, at time.Time) {
	t.Helper()
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// namespaceOf creates a namespace for the test.
func namespaceOf(t *testing.T) string {
	t.Helper()
	namespace, err := shared.CreateNamespace(t.Context(), "replicas-")
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, clientOf(t).CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
	})
	return namespace
}

// forever is a toleration without an end.
const forever = -1

// podOn returns a pod on one of the nodes that tolerates the taint for some seconds.
func podOn(node int, name string, seconds int64) *corev1.Pod {
	toleration := corev1.Toleration{Key: taintKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if seconds != forever {
		toleration.TolerationSeconds = &seconds
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName:    controlplane.NodeName(1 + node%nodeCount),
			Tolerations: []corev1.Toleration{toleration},
			Containers:  []corev1.Container{{Name: "c", Image: "image"}},
		},
	}
}

// create creates pods and returns them by name.
func create(t *testing.T, namespace string, pods ...*corev1.Pod) map[string]*corev1.Pod {
	t.Helper()
	client := clientOf(t).CoreV1().Pods(namespace)
	created := make([]*corev1.Pod, len(pods))
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(parallel)
	for i, pod := range pods {
		group.Go(func() (err error) {
			created[i], err = client.Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(t, group.Wait())
	byName := map[string]*corev1.Pod{}
	for _, pod := range created {
		byName[pod.Name] = pod
	}
	return byName
}

// taint puts the taint on all nodes, and returns the time that each of them got. The
// taint goes when the test is over.
func taint(t *testing.T) map[string]time.Time {
	t.Helper()
	ctx, client := context.WithoutCancel(t.Context()), clientOf(t).CoreV1().Nodes()
	patch := func(ctx context.Context, node int, taints string) (*corev1.Node, error) {
		return client.Patch(ctx, controlplane.NodeName(1+node), types.StrategicMergePatchType,
			[]byte(`{"spec":{"taints":`+taints+`}}`), metav1.PatchOptions{})
	}
	t.Cleanup(func() {
		for node := range nodeCount {
			_, err := patch(ctx, node, "null")
			require.NoError(t, err)
		}
	})
	times := map[string]time.Time{}
	for i := range nodeCount {
		node, err := patch(t.Context(), i, `[{"key":"`+taintKey+`","effect":"NoExecute"}]`)
		require.NoError(t, err)
		for _, got := range node.Spec.Taints {
			if got.Key == taintKey && got.TimeAdded != nil {
				times[node.Name] = got.TimeAdded.Time
			}
		}
	}
	require.Len(t, times, nodeCount, "admission writes the time of a taint")
	return times
}

// waitAlive waits until exactly these pods are left, each the one it was.
func waitAlive(t *testing.T, namespace string, want map[string]*corev1.Pod) {
	t.Helper()
	client := clientOf(t)
	eventually(t, "pods left", func(ctx context.Context) error {
		list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		left := 0
		for i := range list.Items {
			pod := &list.Items[i]
			if pod.DeletionTimestamp != nil {
				continue
			}
			left++
			if stays := want[pod.Name]; stays != nil && stays.UID != pod.UID {
				return fmt.Errorf("%s is another one", pod.Name)
			}
		}
		if left != len(want) {
			return fmt.Errorf("%d pods are left, not %d", left, len(want))
		}
		return nil
	})
}

// pendingLine is how many evictions a replica says that it knows of, of nodes or devices.
var pendingLine = regexp.MustCompile(`(?m)^tollgate_evictions_pending(?:\{.*\})? (\S+)$`)

// waitPending waits until a replica knows of as many evictions to come.
func waitPending(t *testing.T, r *replica, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d evictions pending at %s", want, r.Name), func(ctx context.Context) error {
		_, body, err := suite.Fetch(ctx, r.MetricsURL)
		if err != nil {
			return err
		}
		sum := 0.0
		for _, line := range pendingLine.FindAllStringSubmatch(body, -1) {
			value, err := strconv.ParseFloat(line[1], 64)
			if err != nil {
				return err
			}
			sum += value
		}
		if int(sum) != want {
			return fmt.Errorf("%v are", sum)
		}
		return nil
	})
}

// deletions returns when the pods of a namespace were deleted, by name, and fails if one
// was deleted twice.
func deletions(t *testing.T, namespace string) map[string]time.Time {
	t.Helper()
	events, err := audit.Read(func(e *auditv1.Event) bool { return e.ObjectRef.Namespace == namespace })
	require.NoError(t, err)
	times := map[string]time.Time{}
	for _, deletion := range auditlog.Deletions(events) {
		require.NotContains(t, times, deletion.Name, "deleted twice")
		times[deletion.Name] = deletion.At
	}
	return times
}

// waitDeletions returns as deletions does, once there are as many: the log may be a moment
// behind what is seen of the pods. More of them are a failure.
func waitDeletions(t *testing.T, namespace string, want int) (times map[string]time.Time) {
	t.Helper()
	eventually(t, "deletions in the audit log", func(context.Context) error {
		if times = deletions(t, namespace); len(times) < want {
			return fmt.Errorf("%d of %d", len(times), want)
		}
		return nil
	})
	require.Len(t, times, want)
	return times
}

// requireNeverEarly fails if a pod was deleted before its toleration was over.
func requireNeverEarly(t *testing.T, pods map[string]*corev1.Pod, added, deleted map[string]time.Time) {
	t.Helper()
	for name, at := range deleted {
		pod := pods[name]
		require.NotNil(t, pod, "%s was to stay", name)
		due := added[pod.Spec.NodeName].Add(time.Duration(*pod.Spec.Tolerations[0].TolerationSeconds) * time.Second)
		require.False(t, at.Before(due), "%s left at %s, and was due at %s", name, at, due)
	}
}
