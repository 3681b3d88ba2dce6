package admission

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestC16NothingThatKubernetesAddsByItselfIsRefused(t *testing.T) {
	namespace := namespaceOf(t, "builtin-")
	enforce(t, "everything", guarding("*", "node.kubernetes.io/*"))
	meta := metav1.ObjectMeta{Labels: map[string]string{"app": "app"}}
	selector := &metav1.LabelSelector{MatchLabels: meta.Labels}
	template := corev1.PodTemplateSpec{ObjectMeta: meta, Spec: podWith().Spec}
	ctx, client := t.Context(), clientOf(t)

	t.Run("a Deployment runs", func(t *testing.T) {
		deployments := client.AppsV1().Deployments(namespace)
		_, err := deployments.Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "deployment"},
			Spec:       appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: selector, Template: template},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		eventually(ctx, t, "both pods run", func(ctx context.Context) error {
			found, err := deployments.Get(ctx, "deployment", metav1.GetOptions{})
			if err == nil && found.Status.ReadyReplicas != 2 {
				err = fmt.Errorf("%+v", found.Status)
			}
			return err
		})
	})
	for _, hostNetwork := range []bool{false, true} {
		t.Run(fmt.Sprintf("a DaemonSet runs, host network %t", hostNetwork), func(t *testing.T) {
			name := fmt.Sprintf("daemonset-%t", hostNetwork)
			own := metav1.ObjectMeta{Labels: map[string]string{"app": name}}
			object := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: own.Labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: own, Spec: podWith().Spec},
			}}
			object.Spec.Template.Spec.HostNetwork = hostNetwork
			_, err := client.AppsV1().DaemonSets(namespace).Create(ctx, object, metav1.CreateOptions{})
			require.NoError(t, err)
			eventually(ctx, t, "a pod runs on each node", func(ctx context.Context) error {
				found, err := client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
				if err == nil && (found.Status.DesiredNumberScheduled < int32(shared.Nodes()) ||
					found.Status.NumberReady != found.Status.DesiredNumberScheduled) {
					err = fmt.Errorf("%+v", found.Status)
				}
				return err
			})
		})
	}
	t.Run("a Job completes", func(t *testing.T) {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Template: *template.DeepCopy()}}
		job.Spec.Template.Labels = nil
		job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		_, err := client.BatchV1().Jobs(namespace).Create(ctx, job, metav1.CreateOptions{})
		require.NoError(t, err)
		eventually(ctx, t, "its pod succeeds", func(ctx context.Context) error {
			found, err := client.BatchV1().Jobs(namespace).Get(ctx, "job", metav1.GetOptions{})
			if err == nil && found.Status.Succeeded != 1 {
				err = fmt.Errorf("%+v", found.Status)
			}
			return err
		})
	})
	t.Run("a pod runs with what its RuntimeClass brings", func(t *testing.T) { podOfARuntimeClass(t, namespace) })
	t.Run("a user who writes what the DaemonSet controller adds is refused", func(t *testing.T) {
		err := admit(ctx, client, namespace, podWith(exists(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)))
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	})
	t.Run("a DaemonSet whose template has more is refused", func(t *testing.T) {
		greedy := metav1.ObjectMeta{Name: "greedy", Labels: map[string]string{"app": "greedy"}}
		object := &appsv1.DaemonSet{ObjectMeta: greedy, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: greedy.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: greedy.Labels}, Spec: podWith(exists("", "")).Spec},
		}}
		_, err := client.AppsV1().DaemonSets(namespace).Create(ctx, object, metav1.CreateOptions{})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "TolerationPolicy/everything: spec.template.spec.tolerations[0]")
	})
}

func podOfARuntimeClass(t *testing.T, namespace string) {
	t.Helper()
	const name = "runtime-with-tolerations"
	brought := exists("runtime.example.com/x", corev1.TaintEffectNoSchedule)
	classes := clientOf(t).NodeV1().RuntimeClasses()
	_, err := classes.Create(t.Context(), &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: "handler",
		Scheduling: &nodev1.Scheduling{Tolerations: []corev1.Toleration{brought}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, classes.Delete(afterwards(t), name, metav1.DeleteOptions{})) })

	pod := podWith()
	pod.Spec.RuntimeClassName = new(name)
	require.Contains(t, createPod(t, namespace, pod).Spec.Tolerations, brought)
	pod = podWith(exists("runtime.example.com/y", corev1.TaintEffectNoSchedule))
	pod.Spec.RuntimeClassName = new(name)
	err = admit(t.Context(), clientOf(t), namespace, pod)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "key=runtime.example.com/y")
	require.NotContains(t, err.Error(), "key=runtime.example.com/x")
}

func TestTheNamespacesOfTheSystemAreOutside(t *testing.T) {
	enforce(t, "outside", guarding("outside.example.com/x"))
	client := clientOf(t)
	pod := podWith(exists("outside.example.com/x", ""))
	// Tollgate's own namespace only takes pods that give up all privileges.
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot:   new(true),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	require.Error(t, admit(t.Context(), client, metav1.NamespaceDefault, pod))
	for _, namespace := range []string{metav1.NamespaceSystem, "tollgate-system"} {
		require.NoError(t, admit(t.Context(), client, namespace, pod), namespace)
	}
	require.Error(t, admit(t.Context(), client, metav1.NamespacePublic, pod), "not every namespace of Kubernetes' own")
}
