package safety

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

const (
	// patience is far above what anything here takes, but for patienceEach more for every
	// pod that there is: all of them have to come, and to leave at a pace.
	patience     = 3 * time.Minute
	patienceEach = 100 * time.Millisecond
	// interval is how often it is looked whether something has come about.
	interval = 100 * time.Millisecond
	// parallel is how many requests a test makes at once.
	parallel = 16
)

// The sizes of a quick run.
const (
	podsBriefly    = 400
	guardedBriefly = 50
	pendingBriefly = 300
	outageBriefly  = 15 * time.Second
)

// number returns a size that the environment may set.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	require.GreaterOrEqual(t, n, otherwise, name)
	return n
}

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
	pods := max(number(t, "TOLLGATE_SAFETY_PODS", podsBriefly), number(t, "TOLLGATE_SAFETY_PENDING", pendingBriefly))
	most := patience + time.Duration(pods)*patienceEach
	err := wait.PollUntilContextTimeout(t.Context(), interval, most, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err == nil || ctx.Err() == nil {
			last = err // the end of patience says nothing
		}
		return err == nil, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}

// namespaceOf creates a namespace for the test.
func namespaceOf(t *testing.T) string {
	t.Helper()
	namespace, err := shared.CreateNamespace(t.Context(), "safety-")
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, clientOf(t).CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
	})
	return namespace
}

// podOn returns a pod for the node with the number.
func podOn(node int, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName:   controlplane.NodeName(node),
			Containers: []corev1.Container{{Name: "c", Image: "image"}},
		},
	}
}

// podsOn returns pods for one node.
func podsOn(node, count int, name string) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range count {
		pods = append(pods, podOn(node, fmt.Sprintf("%s-%d", name, i)))
	}
	return pods
}

// allNodes are the numbers of all nodes.
func allNodes() []int {
	var nodes []int
	for i := range nodeCount {
		nodes = append(nodes, i+1)
	}
	return nodes
}

// create creates pods and returns their UIDs by name.
func create(t *testing.T, namespace string, pods ...*corev1.Pod) map[string]types.UID {
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
	uids := map[string]types.UID{}
	for _, pod := range created {
		uids[pod.Name] = pod.UID
	}
	return uids
}

// alive returns the UIDs of the pods of a namespace that are not on their way out, by
// name.
func alive(ctx context.Context, client kubernetes.Interface, namespace string) (map[string]types.UID, error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
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

// waitAlive returns the pods of a namespace once so many are left, each of them one of
// those that were created.
func waitAlive(t *testing.T, namespace string, want int, created map[string]types.UID) map[string]types.UID {
	t.Helper()
	client := clientOf(t)
	var pods map[string]types.UID
	eventually(t, "pods left", func(ctx context.Context) (err error) {
		if pods, err = alive(ctx, client, namespace); err == nil && len(pods) != want {
			err = fmt.Errorf("%d pods are left, not %d", len(pods), want)
		}
		return err
	})
	for name, uid := range pods {
		require.Equal(t, created[name], uid, name)
	}
	return pods
}

// isReady reports whether a pod counts for a budget.
func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// waitReady waits until so many pods of a namespace are ready.
func waitReady(t *testing.T, namespace string, want int) {
	t.Helper()
	client := clientOf(t).CoreV1().Pods(namespace)
	eventually(t, "pods ready", func(ctx context.Context) error {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			if isReady(&list.Items[i]) {
				ready++
			}
		}
		if ready != want {
			return fmt.Errorf("%d of %d are", ready, want)
		}
		return nil
	})
}
