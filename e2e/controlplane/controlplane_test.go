package controlplane_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

func TestTheServerIsTheVersionThatIsBuilt(t *testing.T) {
	version, err := clientOf(t, shared).Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, binaries.KubernetesVersion, version.GitVersion)
	require.Equal(t, "1.37", version.Major+"."+version.Minor)
}

func TestAllNodesAreReadyAndUntainted(t *testing.T) {
	nodes, err := clientOf(t, shared).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var names []string
	for _, node := range nodes.Items {
		names = append(names, node.Name)
		require.Empty(t, node.Spec.Taints)
		require.True(t, slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}), node.Name)
	}
	require.Len(t, names, controlplane.DefaultNodes)
	require.Contains(t, names, controlplane.NodeName(1))
}

func TestAPodIsScheduledAndRuns(t *testing.T) {
	pod := runPod(t, shared)
	require.NotEmpty(t, pod.Spec.NodeName)
	require.NotEmpty(t, pod.Status.PodIP)
}

func TestEveryComponentIsAProcess(t *testing.T) {
	pids := shared.RunningPIDs()
	require.ElementsMatch(t, controlplane.Components(), slices.Collect(maps.Keys(pids)))
	require.Empty(t, shared.Dead())
	for name, pid := range pids {
		require.NoError(t, syscall.Kill(pid, 0), name)
		require.FileExists(t, shared.LogPath(name))
	}
}

// Tollgate is judged under the RBAC it ships with, which shows nothing unless
// the control plane enforces it.
func TestAccessIsEnforced(t *testing.T) {
	t.Run("a user without a role sees nothing", func(t *testing.T) {
		client, err := kubernetes.NewForConfig(shared.As("nobody"))
		require.NoError(t, err)
		_, err = client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	})
	t.Run("a node sees itself but may not taint another", func(t *testing.T) {
		client, err := kubernetes.NewForConfig(shared.As("system:node:node-1", "system:nodes"))
		require.NoError(t, err)
		_, err = client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		require.NoError(t, err)
		_, err = client.CoreV1().Nodes().Patch(t.Context(), "node-2", types.MergePatchType,
			[]byte(`{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`), metav1.PatchOptions{})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	})
	t.Run("who has no certificate is anonymous", func(t *testing.T) {
		client, err := kubernetes.NewForConfig(rest.AnonymousClientConfig(shared.RESTConfig()))
		require.NoError(t, err)
		_, err = client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	})
	t.Run("etcd is not open to everyone on the machine", func(t *testing.T) {
		require.NoError(t, health(t, shared.RESTConfig(), shared.URL(controlplane.Etcd)))
		require.Error(t, health(t, rest.AnonymousClientConfig(shared.RESTConfig()), shared.URL(controlplane.Etcd)))
	})
}

func health(t *testing.T, config *rest.Config, url string) error {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/health", nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	if err == nil {
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.NoError(t, response.Body.Close())
	}
	return err
}

func TestAComponentIsKilledAndStartedAgain(t *testing.T) {
	before := shared.RunningPIDs()[controlplane.Scheduler]
	require.NoError(t, shared.Kill(t.Context(), controlplane.Scheduler))
	require.NotContains(t, shared.RunningPIDs(), controlplane.Scheduler)
	require.Equal(t, []string{controlplane.Scheduler}, shared.Dead())

	require.NoError(t, shared.Restart(t.Context(), controlplane.Scheduler))
	require.NotEqual(t, before, shared.RunningPIDs()[controlplane.Scheduler])
	require.Empty(t, shared.Dead())
	runPod(t, shared)
}

func TestTheDataOutliveTheAPIServerAndEtcd(t *testing.T) {
	namespace, err := shared.CreateNamespace(t.Context(), "kept-")
	require.NoError(t, err)
	require.NoError(t, shared.Restart(t.Context(), controlplane.Etcd))
	require.NoError(t, shared.Restart(t.Context(), controlplane.APIServer))
	_, err = clientOf(t, shared).CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	require.NoError(t, err)
	// The others find their server again, or are started again.
	for _, name := range shared.Dead() {
		require.NoError(t, shared.Restart(t.Context(), name))
	}
	runPod(t, shared)
}

func TestANodeWhoseKubeletIsStoppedStaysNotReady(t *testing.T) {
	client := clientOf(t, shared)
	const name = "stopped"
	require.NoError(t, shared.AddNodes(t.Context(), name))
	t.Cleanup(func() { removeNode(t, name) })

	_, err := client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"e2e.tollgate.dev/kubelet":"stopped"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = client.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Stopped"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Key == corev1.TaintNodeNotReady && taint.Effect == corev1.TaintEffectNoExecute
		})
	}, patience, 50*time.Millisecond)
}

func removeNode(t *testing.T, name string) {
	t.Helper()
	client := clientOf(t, shared)
	require.NoError(t, client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}))
}
