package window

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

const (
	// patience is far above what anything here takes.
	patience = 2 * time.Minute
	// interval is how often it is looked whether something has come about.
	interval = 100 * time.Millisecond
	// window is how long the built-in controllers are kept off. Within it the scheduler has
	// to hear of the twin, and the pods that may leave do so one after the other.
	window = 45 * time.Second
)

func clientOf(t *testing.T) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(restConfig(rest.NoWarnings{}))
	require.NoError(t, err)
	return c
}

func namespaceOf(t *testing.T) string {
	t.Helper()
	namespace, err := shared.cp.CreateNamespace(t.Context(), "window-")
	require.NoError(t, err)
	return namespace
}

func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(t.Context(), interval, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}

// govern creates an EvictionPolicy that gives pods time of a taint and evicts by the
// Eviction API, and returns when Tollgate judges by it.
func govern(t *testing.T, name string, taint v1alpha1.TaintSelector) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	c, err := client.New(restConfig(rest.NoWarnings{}), client.Options{Scheme: scheme})
	require.NoError(t, err)
	policy := &v1alpha1.EvictionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.EvictionPolicySpec{
			Taints: []v1alpha1.TaintSelector{taint}, Method: v1alpha1.EvictionMethodEvict,
			Inject: &v1alpha1.EvictionInjection{Seconds: int64(window / time.Second)},
		},
	}
	require.NoError(t, c.Create(t.Context(), policy))
	eventually(t, "the policy is in force", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		if !slices.ContainsFunc(policy.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "Ready" && c.Status == metav1.ConditionTrue }) {
			return errors.New("not Ready")
		}
		return nil
	})
}

// replicas creates a ReplicaSet, and a budget that lets so many of its pods be away.
func replicas(t *testing.T, namespace, name string, count, away int32, spec corev1.PodSpec) {
	t.Helper()
	c := clientOf(t)
	labels := map[string]string{"app": name}
	spec.Containers = []corev1.Container{{Name: "c", Image: "image", Resources: corev1.ResourceRequirements{}}}
	for _, claim := range spec.ResourceClaims {
		spec.Containers[0].Resources.Claims = append(spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: claim.Name})
	}
	_, err := c.PolicyV1().PodDisruptionBudgets(namespace).Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(away)), Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.AppsV1().ReplicaSets(namespace).Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &count, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// letGo has the budget of a ReplicaSet let so many of its pods be away.
func letGo(t *testing.T, namespace, name string, away int) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"maxUnavailable":%d}}`, away)
	_, err := clientOf(t).PolicyV1().PodDisruptionBudgets(namespace).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

// waitKeptOff returns when the scheduler says that it has no node for a new pod: what keeps
// it off comes to the scheduler through a watch, and pods are let in until then.
func waitKeptOff(t *testing.T, namespace string, spec corev1.PodSpec) {
	t.Helper()
	const name = "kept-off"
	pods := clientOf(t).CoreV1().Pods(namespace)
	if len(spec.Containers) == 0 {
		spec.Containers = []corev1.Container{{Name: "c", Image: "image"}}
	}
	eventually(t, "the scheduler keeps a pod off", func(ctx context.Context) error {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
			return errors.Join(errors.New("there was none"), err)
		case err != nil:
			return err
		case pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil:
			return errors.Join(errors.New("it was let in"), pods.Delete(ctx, name, metav1.DeleteOptions{}))
		}
		if !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == corev1.PodReasonUnschedulable }) {
			return fmt.Errorf("it says %v", pod.Status.Conditions)
		}
		return nil
	})
	require.NoError(t, pods.Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// ready returns the pods of a ReplicaSet by name, once so many are ready.
func ready(t *testing.T, namespace, app string, count int) map[string]corev1.Pod {
	t.Helper()
	pods := map[string]corev1.Pod{}
	eventually(t, "ready pods of "+app, func(ctx context.Context) error {
		list, err := clientOf(t).CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return err
		}
		clear(pods)
		for i := range list.Items {
			pod := &list.Items[i]
			running := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
			if running && pod.DeletionTimestamp == nil {
				pods[pod.Name] = *pod
			}
		}
		if len(pods) != count {
			return fmt.Errorf("%d of %d", len(pods), count)
		}
		return nil
	})
	return pods
}

// exit is how a pod was made to leave.
type exit struct {
	pod, user string
	evicted   bool // by the Eviction API
	at        time.Time
}

// kubelet is who ends what was deleted.
const kubelet = "kwok"

// exits returns what made pods of a namespace leave: what was answered with success.
func exits(t *testing.T, namespace string) []exit {
	t.Helper()
	events, err := shared.audit.Read(func(e *auditv1.Event) bool {
		return e.ObjectRef.Namespace == namespace && e.ObjectRef.Resource == "pods" && e.User.Username != kubelet && e.ResponseStatus != nil && e.ResponseStatus.Code < http.StatusMultipleChoices
	})
	require.NoError(t, err)
	list := make([]exit, len(events))
	for i := range events {
		e := &events[i]
		list[i] = exit{e.ObjectRef.Name, e.User.Username, e.ObjectRef.Subresource == "eviction", e.RequestReceivedTimestamp.Time}
	}
	return list
}

// bindings sees which pods of a namespace come to be on which nodes.
type bindings struct {
	mu   sync.Mutex
	seen map[types.UID]string
}

func watchBindings(t *testing.T, namespace string) *bindings {
	t.Helper()
	b := &bindings{seen: map[types.UID]string{}}
	stream, err := clientOf(t).CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	t.Cleanup(stream.Stop)
	go func() {
		for event := range stream.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
				b.mu.Lock()
				b.seen[pod.UID] = pod.Spec.NodeName
				b.mu.Unlock()
			}
		}
	}()
	return b
}

// newOn returns how many pods came to be on a node beside those that were there.
func (b *bindings) newOn(node string, before ...map[string]corev1.Pod) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	count := 0
	for uid, on := range b.seen {
		known := slices.ContainsFunc(before, func(pods map[string]corev1.Pod) bool {
			for name := range pods {
				if pods[name].UID == uid {
					return true
				}
			}
			return false
		})
		if on == node && !known {
			count++
		}
	}
	return count
}

// marks returns how often it was said of a pod that it is deleted because of a taint.
func marks(t *testing.T, namespace, pod string) (times int) {
	t.Helper()
	list, err := clientOf(t).CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
	require.NoError(t, err)
	for i := range list.Items {
		if e := &list.Items[i]; strings.Contains(e.Reason, "TaintManagerEviction") && strings.HasPrefix(e.Message, "Marking for deletion") {
			times += int(max(e.Count, 1))
		}
	}
	return times
}
