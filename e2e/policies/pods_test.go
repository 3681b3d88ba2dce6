package policies

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podWith returns a pod with tolerations, whose name the API server makes up.
func podWith(tolerations ...corev1.Toleration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec: corev1.PodSpec{
			Containers:  []corev1.Container{{Name: "c", Image: "image"}},
			Tolerations: tolerations,
		},
	}
}

// podNamed returns a pod with a name, and tolerations.
func podNamed(name string, tolerations ...corev1.Toleration) *corev1.Pod {
	pod := podWith(tolerations...)
	pod.GenerateName, pod.Name = "", name
	return pod
}

// onNode binds a pod to a node past the scheduler.
func onNode(pod *corev1.Pod, node string) *corev1.Pod {
	pod.Spec.NodeName = node
	return pod
}

// gated makes a pod wait behind scheduling gates.
func gated(pod *corev1.Pod, gates ...string) *corev1.Pod {
	for _, gate := range gates {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
	}
	return pod
}

// requestsOne is a request for one of a resource.
func requestsOne(name corev1.ResourceName) corev1.ResourceRequirements {
	one := corev1.ResourceList{name: resource.MustParse("1")}
	return corev1.ResourceRequirements{Requests: one, Limits: one}
}

// exists is a toleration of a key with any value; no effect is every effect.
func exists(key string, effect corev1.TaintEffect) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
}

// equal is a toleration of a key with a value, for every effect.
func equal(key, value string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpEqual, Value: value}
}

// forSeconds is a toleration of NoExecute taints with a key, for a while.
func forSeconds(key string, seconds int64) corev1.Toleration {
	toleration := exists(key, corev1.TaintEffectNoExecute)
	toleration.TolerationSeconds = &seconds
	return toleration
}

// admit asks whether somebody may create a pod, as a dry run.
func (p *person) admit(t *testing.T, namespace string, pod *corev1.Pod) error {
	t.Helper()
	_, err := p.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: dryRun})
	return err
}

// createPod creates a pod that must be let in.
func (p *person) createPod(t *testing.T, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod, err := p.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	return pod
}

// podNow returns a pod as it is stored.
func podNow(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	pod, err := admin(t).CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return pod
}

// waitRuns returns when a pod runs, and on which node.
func waitRuns(t *testing.T, namespace, name string) string {
	t.Helper()
	var on string
	eventually(t, "pod "+name+" runs", func(ctx context.Context) error {
		pod, err := admin(t).CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s: %v", pod.Status.Phase, pod.Status.Conditions)
		}
		on = pod.Spec.NodeName
		return nil
	})
	return on
}

// waitUnschedulable returns when the scheduler says that it has no node for a pod, and
// that with all of the parts: what it says at first may be from before it knew of a node.
func waitUnschedulable(t *testing.T, namespace, name string, parts ...string) {
	t.Helper()
	eventually(t, "the scheduler has no node for pod "+name, func(ctx context.Context) error {
		pod, err := admin(t).CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range pod.Status.Conditions {
			unschedulable := condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable
			if unschedulable && containsAll(condition.Message, parts) {
				return nil
			}
		}
		return fmt.Errorf("it is on %q: %v", pod.Spec.NodeName, pod.Status.Conditions)
	})
}

// waitGone returns when a pod is deleted, or has been told to go.
func waitGone(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, "pod "+name+" goes", func(ctx context.Context) error {
		list, err := admin(t).CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil {
			return err
		}
		if len(list.Items) > 0 && list.Items[0].DeletionTimestamp == nil {
			return errors.New("it stays")
		}
		return nil
	})
}

// waitPodOf returns the name of the first pod that a controller has made; selector is
// of its labels.
func waitPodOf(t *testing.T, namespace, selector string) string {
	t.Helper()
	var name string
	eventually(t, "a pod with "+selector, func(ctx context.Context) error {
		list, err := admin(t).CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errStill
		}
		name = list.Items[0].Name
		return nil
	})
	return name
}

// deletePod deletes a pod as somebody.
func (p *person) deletePod(t *testing.T, namespace, name string) {
	t.Helper()
	require.NoError(t, p.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
}
