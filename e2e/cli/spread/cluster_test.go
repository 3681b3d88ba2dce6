package spread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const (
	// patience is far above what anything here takes.
	patience = time.Minute
	// interval is how often it is looked whether something has come about.
	interval = 20 * time.Millisecond
	// seenKey is the key of a label that one node has once all are as a test has them.
	seenKey = "spread.example.com/seen"
)

// heard are the warnings that a client was answered with.
type heard struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (h *heard) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.texts = append(h.texts, text)
}

// take returns the warnings since the last time.
func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	texts := h.texts
	h.texts = nil
	return texts
}

// administrator is a client and what it was warned of.
type administrator struct {
	kubernetes.Interface

	heard *heard
}

func admin(t *testing.T) administrator {
	t.Helper()
	config, warnings := shared.RESTConfig(), &heard{}
	config.WarningHandler = warnings
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return administrator{client, warnings}
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

// namespaceOf makes a namespace that goes when the test is over.
func namespaceOf(t *testing.T) string {
	t.Helper()
	name, err := shared.CreateNamespace(t.Context(), "spread-")
	require.NoError(t, err)
	t.Cleanup(func() {
		err := admin(t).CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		require.NoError(t, err)
	})
	return name
}

// look is what a test makes of a node: labels to remove are nil.
type look struct {
	labels map[string]*string
	taints []corev1.Taint
}

// dress gives the nodes new labels and taints, and returns them when the scheduler has
// seen that. A watch tells of the nodes in the order in which they were written: it has
// seen all when it places a pod by a label of the last one.
func dress(t *testing.T, namespace string, as func(i int) look) []corev1.Node {
	t.Helper()
	client := admin(t)
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, nodes)
	dressed := list.Items
	for i := range dressed {
		looks := as(i)
		if i == len(dressed)-1 {
			looks.labels[seenKey] = &namespace
		}
		taints := looks.taints
		if taints == nil {
			taints = []corev1.Taint{}
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": looks.labels}, "spec": map[string]any{"taints": taints}})
		require.NoError(t, err)
		node, err := client.CoreV1().Nodes().Patch(t.Context(), dressed[i].Name, types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
		dressed[i] = *node
	}
	probe := web("probe")
	probe.Labels = nil
	probe.Spec.NodeSelector = map[string]string{seenKey: namespace}
	probe.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	created, err := client.CoreV1().Pods(namespace).Create(t.Context(), probe, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "the scheduler sees the nodes", func(ctx context.Context) error {
		pod, err := client.CoreV1().Pods(namespace).Get(ctx, created.Name, metav1.GetOptions{})
		if err == nil && pod.Spec.NodeName == "" {
			err = fmt.Errorf("%+v", pod.Status.Conditions)
		}
		return err
	})
	remove(t, client, created)
	return dressed
}

// remove deletes a pod and returns when it is gone.
func remove(t *testing.T, client administrator, pod *corev1.Pod) {
	t.Helper()
	pods := client.CoreV1().Pods(pod.Namespace)
	require.NoError(t, pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	eventually(t, "pod "+pod.Name+" is gone", func(ctx context.Context) error {
		_, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// web returns a pod with app=web and the constraints.
func web(name string, constraints ...corev1.TopologySpreadConstraint) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			Containers:                []corev1.Container{{Name: "web", Image: "registry.example.com/web"}},
			TopologySpreadConstraints: constraints,
		},
	}
}

// tried returns a pod once the scheduler has placed it, or said that it fits nowhere.
func tried(t *testing.T, client administrator, created *corev1.Pod) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, "pod "+created.Name+" is tried", func(ctx context.Context) error {
		var err error
		pod, err = client.CoreV1().Pods(created.Namespace).Get(ctx, created.Name, metav1.GetOptions{})
		if err == nil && pod.Spec.NodeName == "" && refusal(pod) == "" {
			err = fmt.Errorf("%+v", pod.Status.Conditions)
		}
		return err
	})
	return pod
}

// refusal returns why a pod fits nowhere; empty if that is not said.
func refusal(pod *corev1.Pod) string {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
	if i < 0 {
		return ""
	}
	return pod.Status.Conditions[i].Message
}
