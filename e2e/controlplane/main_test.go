package controlplane_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// patience is far above what anything here takes.
const patience = time.Minute

// shared is the control plane that the tests share; its evictors are off.
var shared *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(suite.Run(m, "controlplane", controlplane.Options{},
		func(_ context.Context, cp *controlplane.ControlPlane) (func(), error) {
			shared = cp
			return nil, nil
		}))
}

func clientOf(t *testing.T, cp *controlplane.ControlPlane) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	return client
}

// runPod creates a pod in a namespace of the test's own and returns when it runs.
func runPod(t *testing.T, cp *controlplane.ControlPlane) *corev1.Pod {
	t.Helper()
	client := clientOf(t, cp)
	namespace, err := cp.CreateNamespace(t.Context(), "controlplane-")
	require.NoError(t, err)
	pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		pod, err = client.CoreV1().Pods(namespace).Get(t.Context(), "pod", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning
	}, patience, 50*time.Millisecond)
	return pod
}
