package admission

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// unreachable is how the API server says that nobody answers at a webhook whose
// failurePolicy is Fail.
const unreachable = `failed calling webhook "validate.tollgate.dev"`

func TestWhileTollgateIsDown(t *testing.T) {
	const name = "while-down"
	namespace := namespaceOf(t, "down-")
	addNode(t, name)
	enforce(t, "down-stays", guarding("down.example.com/x"))
	enforce(t, "down-goes", guarding("down.example.com/y"))
	pod := createPod(t, namespace, podWith())
	terminate(t)

	t.Run("pods are refused", func(t *testing.T) { podsWhileDown(t, namespace, pod) })
	t.Run("nodes go on", func(t *testing.T) { nodesWhileDown(t, name) })
	t.Run("policies are read and deleted", policiesWhileDown)

	require.NoError(t, tollgate.Start(t.Context()))
	t.Run("afterwards all is as before", func(t *testing.T) {
		waitInForce(t.Context(), t)
		client := clientOf(t)
		eventually(t.Context(), t, "the Deployment that waited runs", func(ctx context.Context) error {
			found, err := client.AppsV1().Deployments(namespace).Get(ctx, "waits", metav1.GetOptions{})
			if err == nil && found.Status.ReadyReplicas != 1 {
				err = fmt.Errorf("%+v", found.Status)
			}
			return err
		})
		err := admit(t.Context(), client, namespace, podWith(exists("down.example.com/x", "")))
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "TolerationPolicy/down-stays")
		require.NoError(t, admit(t.Context(), client, namespace, podWith(exists("down.example.com/y", ""))), "it was deleted")
		before := time.Now()
		kubectl(t, "taint", "node", name, "down.example.com/z=:NoExecute")
		requireNow(t, timeOf(t, nodeNow(t, name), "down.example.com/z", corev1.TaintEffectNoExecute), before)
	})
}

func podsWhileDown(t *testing.T, namespace string, pod *corev1.Pod) {
	t.Helper()
	ctx, pods := t.Context(), clientOf(t).CoreV1().Pods(namespace)
	require.ErrorContains(t, admit(ctx, clientOf(t), namespace, podWith()), unreachable)
	guarded := writes(pod, "down.example.com/x")["a JSON patch"]
	require.ErrorContains(t, guarded.do(t, pods, pod.Name), unreachable)
	require.NoError(t, admit(ctx, clientOf(t), metav1.NamespaceSystem, podWith()), "the namespace of the system is outside")

	_, err := pods.Patch(ctx, pod.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	require.NoError(t, err, "a field that is not judged")
	_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"example.com/a","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err, "the status")
	require.NoError(t, pods.Delete(ctx, pod.Name, metav1.DeleteOptions{}))

	// Controllers try again, so what they were told to run runs once Tollgate is back.
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "waits"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "waits"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "waits"}}, Spec: podWith().Spec},
	}}
	_, err = clientOf(t).AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{})
	require.NoError(t, err)
}

func nodesWhileDown(t *testing.T, name string) {
	t.Helper()
	ctx := t.Context()
	nodes := clientOf(t).CoreV1().Nodes()
	registered, err := kubelet(t, "registers-while-down").CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "registers-while-down"},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "down.example.com/x", Effect: corev1.TaintEffectNoSchedule}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { deleteNode(t, registered.Name) })

	_, err = kubelet(t, name).CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(heartbeat), metav1.PatchOptions{}, "status")
	require.NoError(t, err, "the heartbeat in the status")
	now := metav1.NowMicro()
	_, err = kubelet(t, registered.Name).CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: registered.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &registered.Name, RenewTime: &now},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) { // kwok may be faster
		require.NoError(t, err, "the heartbeat in the lease")
	}
	_, err = nodes.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"example.com/a":"b"}}}`), metav1.PatchOptions{})
	require.NoError(t, err, "a label")

	out, err := install.Kubectl(ctx, shared, "taint", "node", name, "down.example.com/x=:NoSchedule")
	require.Error(t, err)
	require.Contains(t, string(out), unreachable, "who taints nodes waits for Tollgate")

	t.Run("the node lifecycle controller taints and untaints", func(t *testing.T) { lifecycleWhileDown(t, name) })
}

func lifecycleWhileDown(t *testing.T, name string) {
	t.Helper()
	fail(t, name, corev1.ConditionFalse)
	waitTaint(t, name, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable)
	repair(t, name)
	waitTaints(t, name, 0)
	kubectl(t, "cordon", name)
	eventually(t.Context(), t, "the node is tainted unschedulable", func(ctx context.Context) error {
		node, err := clientOf(t).CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && taintOf(node, corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule) == nil {
			err = errors.New("it is not")
		}
		return err
	})
	kubectl(t, "uncordon", name)
	waitTaints(t, name, 0)
}

func policiesWhileDown(t *testing.T) {
	ctx, c := t.Context(), policiesOf(t)
	policy := &v1alpha1.TolerationPolicy{}
	require.NoError(t, c.Get(ctx, keyOf("down-goes"), policy))
	policy.Spec.Message = "changed"
	require.ErrorContains(t, c.Update(ctx, policy), unreachable)
	require.NoError(t, c.Delete(ctx, policy))
	another := &v1alpha1.TolerationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "down-comes"}, Spec: guarding("down.example.com/z")}
	require.ErrorContains(t, c.Create(ctx, another), unreachable)
}
