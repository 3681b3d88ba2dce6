package controlplane_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

func TestAnotherSchedulerTakesThePlaceAndStaysAfterARestart(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(config, []byte(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: /nowhere}
profiles: [{schedulerName: first}]
`), 0o600))
	another := filepath.Join(t.TempDir(), "kube-scheduler")
	require.NoError(t, os.WriteFile(another, []byte("#!/bin/sh\nexec "+shared.Program()+" kube-scheduler \"$@\"\n"), 0o700))
	rename := func(config map[string]any) { config["profiles"] = []any{map[string]any{"schedulerName": "second"}} }

	require.NoError(t, shared.ReplaceScheduler(t.Context(), controlplane.SchedulerOptions{Program: another, Config: config, Change: rename}))
	requireSchedules(t, "second")
	require.NoError(t, shared.Restart(t.Context(), controlplane.Scheduler))
	requireSchedules(t, "second")

	require.NoError(t, shared.ReplaceScheduler(t.Context(), controlplane.SchedulerOptions{Config: config}))
	requireSchedules(t, "first")

	require.ErrorContains(t, shared.ReplaceScheduler(t.Context(), controlplane.SchedulerOptions{Config: config + ".none"}),
		"read configuration of scheduler")
	require.NoError(t, shared.ReplaceScheduler(t.Context(), controlplane.SchedulerOptions{}))
	runPod(t, shared)
}

// requireSchedules fails unless pods that ask for a scheduler get a node.
func requireSchedules(t *testing.T, scheduler string) {
	t.Helper()
	pods := clientOf(t, shared).CoreV1().Pods(metav1.NamespaceDefault)
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "scheduled-"},
		Spec:       corev1.PodSpec{SchedulerName: scheduler, Containers: []corev1.Container{{Name: "c", Image: "image"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		pod, err := pods.Get(t.Context(), pod.Name, metav1.GetOptions{})
		return err == nil && pod.Spec.NodeName != ""
	}, patience, 50*time.Millisecond)
}
