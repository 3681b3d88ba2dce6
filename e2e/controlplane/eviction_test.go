package controlplane_test

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// startAnother starts a control plane for one test.
func startAnother(t *testing.T, name string, options controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	cp, err := suite.Start(t.Context(), name, options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cp.Stop(context.WithoutCancel(t.Context()))) })
	return cp
}

// taint puts a NoExecute taint on the node of a pod that does not tolerate it.
func taint(t *testing.T, cp *controlplane.ControlPlane, pod *corev1.Pod) {
	t.Helper()
	_, err := clientOf(t, cp).CoreV1().Nodes().Patch(t.Context(), pod.Spec.NodeName, types.StrategicMergePatchType,
		[]byte(`{"spec":{"taints":[{"key":"maintenance","effect":"NoExecute"}]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}

// controllers is what the controller manager says it runs.
func controllers(t *testing.T, cp *controlplane.ControlPlane) string {
	t.Helper()
	client, err := rest.HTTPClientFor(cp.RESTConfig())
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cp.URL(controlplane.ControllerManager)+"/healthz?verbose", nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}

func TestWithTollgateNoBuiltinControllerEvicts(t *testing.T) {
	running := controllers(t, shared)
	require.Contains(t, running, "node-lifecycle-controller")
	require.NotContains(t, running, "taint-eviction-controller", "nor the one for devices, whose name ends the same")

	pod := runPod(t, shared)
	taint(t, shared, pod)
	t.Cleanup(func() {
		_, err := clientOf(t, shared).CoreV1().Nodes().Patch(context.WithoutCancel(t.Context()), pod.Spec.NodeName, types.MergePatchType,
			[]byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	})
	// The controller manager has gone on to later work.
	_, err := shared.CreateNamespace(t.Context(), "later-")
	require.NoError(t, err)
	again, err := clientOf(t, shared).CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, pod.UID, again.UID)
	require.Nil(t, again.DeletionTimestamp)
}

func TestWithoutTollgateTheBuiltinControllerEvicts(t *testing.T) {
	cp := startAnother(t, "controlplane-builtin", controlplane.Options{Nodes: 1, Eviction: controlplane.EvictionBuiltin})
	running := controllers(t, cp)
	require.Contains(t, running, "]taint-eviction-controller")
	require.Contains(t, running, "]device-taint-eviction-controller")

	pod := runPod(t, cp)
	taint(t, cp, pod)
	require.Eventually(t, func() bool {
		_, err := clientOf(t, cp).CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, 50*time.Millisecond)
}

func TestAStopLeavesTheLogsAlone(t *testing.T) {
	cp := startAnother(t, "controlplane-stop", controlplane.Options{Nodes: controlplane.NoNodes})
	dir := cp.Dir()
	for name := range cp.RunningPIDs() {
		require.NoError(t, cp.Kill(t.Context(), name))
	}
	require.NoError(t, cp.Stop(t.Context()), "though all have died")
	entries, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "logs")}, entries)
	require.FileExists(t, cp.LogPath(controlplane.APIServer))
	require.NoError(t, cp.Stop(t.Context()), "again")
}
