package eviction

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// slack is how much later than its time a pod may leave: a toleration is counted
// from the end of the second in which the taint came, and a machine that runs a
// whole control plane beside the test is not quick.
const slack = 10 * time.Second

// watchConditions follows the pods of a namespace, and returns a function that
// says which reason for its disruption each of them was seen with.
func watchConditions(t *testing.T, namespace string) func() map[string]string {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]string{}
	note := func(obj any) {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
				mu.Lock()
				seen[pod.Name] = c.Reason
				mu.Unlock()
			}
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clientOf(t), 0, informers.WithNamespace(namespace))
	registration, err := factory.Core().V1().Pods().Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, obj any) { note(obj) },
	})
	require.NoError(t, err)
	factory.Start(t.Context().Done())
	require.True(t, toolscache.WaitForCacheSync(t.Context().Done(), registration.HasSynced))
	return func() map[string]string {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(seen)
	}
}

// waitPending waits until the leader knows of as many evictions.
func waitPending(t *testing.T, want int) {
	t.Helper()
	eventually(t, "evictions pending", func(ctx context.Context) error {
		got, err := metric(ctx, "tollgate_evictions_pending")
		if err == nil && int(got) != want {
			err = fmt.Errorf("%v pending, not %d", got, want)
		}
		return err
	})
}

// waitAlive waits until exactly these pods are left, each the one it was.
func waitAlive(t *testing.T, namespace string, want map[string]*corev1.Pod) {
	t.Helper()
	client := clientOf(t)
	eventually(t, "pods left", func(ctx context.Context) error {
		pods, err := alive(ctx, client, namespace)
		if err == nil && len(pods) != len(want) {
			err = fmt.Errorf("%d pods are left, not %d", len(pods), len(want))
		}
		return err
	})
	pods, err := alive(t.Context(), client, namespace)
	require.NoError(t, err)
	for name, pod := range want {
		require.Contains(t, pods, name)
		require.Equal(t, pod.UID, pods[name].UID)
	}
}

func TestThousandPodsLeaveAtOnce(t *testing.T) {
	const perNode = 50
	require.NoError(t, shared.AddNodes(t.Context(), "untainted"))
	t.Cleanup(func() {
		require.NoError(t, clientOf(t).CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), "untainted", metav1.DeleteOptions{}))
	})
	namespace := namespaceOf(t)
	nodes := nodesOf(nodeCount)
	var leave, stay []*corev1.Pod
	for _, node := range nodes {
		for i := range perNode {
			leave = append(leave, podOn(node, fmt.Sprintf("leave-%s-%d", node, i)))
		}
		stay = append(stay, podOn(node, "tolerates-"+node, tolerate(-1)), podOn("untainted", "beside-"+node))
	}
	staying := create(t, namespace, stay...)
	create(t, namespace, leave...)
	waitRunning(t, namespace)
	conditions := watchConditions(t, namespace)
	before, err := metric(t.Context(), "taint_eviction_controller_pod_deletions_total")
	require.NoError(t, err)
	reads := len(asked(t, ""))

	began := time.Now()
	taint(t, nodes...)
	waitAlive(t, namespace, staying)
	took := time.Since(began)
	t.Logf("%d pods on %d nodes left in %s", len(leave), nodeCount, took.Round(time.Millisecond))

	waitPending(t, 0)
	// A deletion is counted a moment after it is pending no more.
	eventually(t, "each deletion is counted, and no other", func(ctx context.Context) error {
		after, err := metric(ctx, "taint_eviction_controller_pod_deletions_total")
		if err == nil && int(after-before) != len(leave) {
			err = fmt.Errorf("%v are", after-before)
		}
		return err
	})
	deleted := waitDeletions(t, namespace, len(leave))
	events := asked(t, namespace)
	counts := count(events)
	t.Logf("requests: %v", counts)
	for name := range deleted {
		require.True(t, strings.HasPrefix(name, "leave-"), "%s was not to leave", name)
	}
	require.Equal(t, len(leave), counts["patch pods/status 200"], "each pod is marked once")
	require.LessOrEqual(t, len(events), len(leave)*205/100, "requests a pod")
	// However long all of it takes, a node is read again after five seconds at the earliest.
	require.LessOrEqual(t, len(asked(t, ""))-reads, nodeCount*(2+int(took/(5*time.Second))), "requests about nodes")
	eventually(t, "pods were seen with the condition", func(context.Context) error {
		if seen := len(conditions()); seen <= len(leave)/2 {
			return fmt.Errorf("%d were; a watch may skip versions, but hardly so many", seen)
		}
		return nil
	})
	for name, reason := range conditions() {
		require.Equal(t, "DeletionByTaintManager", reason, name)
	}
}

func TestKilledWhileEvictionsWait(t *testing.T) {
	const (
		count = 200
		// Whoever is started after the crash leads by then.
		first = 30
		last  = 45
	)
	namespace := namespaceOf(t)
	nodes := nodesOf(4)
	var pods, stay []*corev1.Pod
	for i := range count {
		pods = append(pods, podOn(nodes[i%len(nodes)], fmt.Sprintf("leave-%d", i), tolerate(first+int64(i)%(last-first+1))))
	}
	for _, node := range nodes {
		stay = append(stay, podOn(node, "tolerates-"+node, tolerate(-1)))
	}
	staying := create(t, namespace, stay...)
	leaving := create(t, namespace, pods...)
	added := taint(t, nodes...)
	waitPending(t, count)

	require.NoError(t, tollgate.Kill(t.Context()))
	require.Empty(t, deletions(t, asked(t, namespace)), "the first one is not due yet")
	require.NoError(t, tollgate.Start(t.Context()))

	waitAlive(t, namespace, staying)
	deleted := waitDeletions(t, namespace, count) // None is forgotten.
	var latest time.Duration
	for name, pod := range leaving {
		due := added[pod.Spec.NodeName].Add(time.Duration(*pod.Spec.Tolerations[0].TolerationSeconds) * time.Second)
		late := deleted[name].Sub(due)
		require.GreaterOrEqual(t, late, time.Duration(0), "%s left early", name)
		latest = max(latest, late)
	}
	t.Logf("none early, the latest %s late", latest.Round(time.Millisecond))
	require.Less(t, latest, slack)
}

func TestTaintWithoutATimeIsStamped(t *testing.T) {
	// Only while Tollgate is away does a taint come in without a time.
	require.NoError(t, tollgate.Kill(t.Context()))
	client := clientOf(t).CoreV1()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "bare"},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "e2e.example.com/other", Effect: corev1.TaintEffectNoSchedule},
			{Key: taintKey, Effect: corev1.TaintEffectNoExecute},
		}},
	}
	_, err := client.Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.Nodes().Delete(context.WithoutCancel(t.Context()), "bare", metav1.DeleteOptions{}))
	})
	began := time.Now().Truncate(time.Second)
	require.NoError(t, tollgate.Start(t.Context()))

	var stamped time.Time
	eventually(t, "taint stamped", func(ctx context.Context) error {
		node, err := client.Nodes().Get(ctx, "bare", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key == taintKey && taint.TimeAdded != nil {
				stamped = taint.TimeAdded.Time
				return nil
			}
		}
		return fmt.Errorf("taints %v", node.Spec.Taints)
	})
	require.False(t, stamped.Before(began.Add(-time.Second)), "at %s, after %s", stamped, began)
	require.False(t, stamped.After(time.Now()), "at %s", stamped)
}

func TestPodThatChangesAllTheTimeLeaves(t *testing.T) {
	namespace := namespaceOf(t)
	node := controlplane.NodeName(1)
	create(t, namespace, podOn(node, "restless"))
	client := clientOf(t).CoreV1().Pods(namespace)
	ctx, cancel := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writes := 0
	writer.Go(func() {
		for ctx.Err() == nil {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"e2e.example.com/write":"%d"}}}`, writes)
			if _, err := client.Patch(ctx, "restless", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				return
			}
			writes++
		}
	})
	taint(t, node)
	waitAlive(t, namespace, nil)
	cancel()
	writer.Wait()
	waitDeletions(t, namespace, 1)
	t.Logf("%d writes beside; requests: %v", writes, count(asked(t, namespace)))
}

func TestDeletionThatIsDeniedIsRepeated(t *testing.T) {
	namespace := namespaceOf(t)
	node := controlplane.NodeName(2)
	tried, allow := denyDeletions(t, namespace)
	create(t, namespace, podOn(node, "guarded"))
	taint(t, node)
	eventually(t, "an event says so", func(ctx context.Context) error {
		events, err := clientOf(t).CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.Reason == "TaintManagerEvictionHeldUp" && strings.Contains(event.Message, "not now") {
				return nil
			}
		}
		return fmt.Errorf("%d other events", len(events.Items))
	})
	pods, err := alive(t.Context(), clientOf(t), namespace)
	require.NoError(t, err)
	require.Contains(t, pods, "guarded")
	allow()
	waitAlive(t, namespace, tried)
	waitDeletions(t, namespace, 1)
	events := asked(t, namespace)
	t.Logf("requests: %v", count(events))
	require.Equal(t, 1, count(events)["patch pods/status 200"], "the condition stands after the first attempt")
}
