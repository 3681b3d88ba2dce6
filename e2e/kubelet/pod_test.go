package kubelet

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestTheEndingOfAPodIsWrittenThoughTheAPIServerFailsForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "1"}}
		client := fake.NewClientset(pod)
		failures := 3
		client.PrependReactor("update", "pods", func(clienttesting.Action) (bool, apiruntime.Object, error) {
			failures--
			return failures >= 0, nil, errors.New("the API server restarts")
		})
		w := newPodWorker(Options{}, client, pod, "192.0.2.1", podAddress{podIP: "10.160.7.3"})
		require.NoError(t, w.writeLast(t.Context()))
		written, err := client.CoreV1().Pods("default").Get(t.Context(), "pod", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "10.160.7.3", written.Status.PodIP)
	})
}

func TestAWorkerThatEndsLeavesTheFilesOfTheNextForItsPod(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "1"}}
	options, addresses := Options{Dir: t.TempDir()}, newAddresses()
	first := newPodWorker(options, fake.NewClientset(), pod, "192.0.2.1", addresses.next())
	next := newPodWorker(options, fake.NewClientset(), pod, "192.0.2.1", addresses.next())
	file := filepath.Join(next.volumes.dir, "file")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	first.tell(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}})
	require.NoError(t, first.run(t.Context()))
	require.FileExists(t, file)
}
