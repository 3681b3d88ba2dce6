package installing

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Behind its Service, with the rights and the protection that are shipped.
func TestTollgateRegistersItsWebhooksOnceAReplicaIsReady(t *testing.T) {
	kustomization := filepath.Join(programs.Root, "deploy", "overlays", "managed")
	t.Cleanup(func() {
		kubectl(t, "delete", "-k", kustomization, "--ignore-not-found", "--timeout="+patience.String())
	})
	kubectl(t, "apply", "-k", kustomization)
	client := client(t)
	webhooks := func() (validating, mutating int) {
		v, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "tollgate", metav1.GetOptions{})
		require.NoError(t, err)
		m, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), "tollgate", metav1.GetOptions{})
		require.NoError(t, err)
		return len(v.Webhooks), len(m.Webhooks)
	}

	// No machine runs the pods, as when their image cannot be pulled.
	tolerant := podOf(corev1.Toleration{Operator: corev1.TolerationOpExists})
	for range 10 {
		validating, mutating := webhooks()
		require.Zero(t, validating+mutating)
		require.NoError(t, create(t.Context(), client, tolerant.DeepCopy()))
		time.Sleep(200 * time.Millisecond)
	}

	machines := startKubelets(t)
	kubectl(t, "rollout", "status", "deployment/tollgate", "-n", system, "--timeout="+patience.String())
	eventually(t, "the webhooks are registered", func() error {
		if validating, mutating := webhooks(); validating == 0 || mutating == 0 {
			return fmt.Errorf("there are %d and %d", validating, mutating)
		}
		return nil
	})
	works(t)

	machines.stop()
	eventually(t, "what is judged is refused while nobody answers", func() error {
		if create(t.Context(), client, tolerant.DeepCopy()) == nil {
			return errors.New("a tolerant pod is not refused")
		}
		return nil
	})
	require.NoError(t, create(t.Context(), client, podOf()), "a plain pod does not call out")
	validating, mutating := webhooks()
	require.NotZero(t, validating)
	require.NotZero(t, mutating)

	machines.start()
	works(t)
	leaves(t, func() {
		kubectl(t, "delete", "-k", kustomization, webhooksOnly)
		kubectl(t, "delete", "-k", kustomization, "--ignore-not-found")
	})
}
