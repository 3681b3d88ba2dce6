package callers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

func becomes(t *testing.T, what string, check func() error) {
	t.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}

// The API server traces each request, and says so to its webhooks.
func TestAReviewIsASpanBelowThatOfTheAPIServer(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(policy, []byte(
		"{apiVersion: tollgate.dev/v1alpha1, kind: TolerationPolicy, metadata: {name: traced}, spec: {taints: [{key: traced.example.com/x}]}}"), 0o600))
	out, err := install.Kubectl(t.Context(), shared, "apply", "-f", policy)
	require.NoError(t, err, string(out))
	t.Cleanup(func() {
		out, err := install.Kubectl(context.WithoutCancel(t.Context()), shared, "delete", "-f", policy)
		require.NoError(t, err, string(out))
	})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "traced", Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			Containers:  []corev1.Container{{Name: "c", Image: "image"}},
			Tolerations: []corev1.Toleration{{Key: "traced.example.com/x", Operator: corev1.TolerationOpExists}},
		},
	}
	becomes(t, "the pod is refused", func() error {
		_, err := client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("it is let in")
		}
		return nil
	})
	becomes(t, "the refusal is traced", func() error {
		spans, sent := traces.of(pod.Name)
		for _, span := range spans {
			if span.attributes["tollgate.verdict"] != "denied" {
				continue
			}
			if !sent(span.parent) {
				return fmt.Errorf("the API server has not sent the span above %+v", span)
			}
			require.Equal(t, "validate", span.attributes["tollgate.endpoint"])
			require.Equal(t, "pods", span.attributes["tollgate.resource"])
			require.Equal(t, "CREATE", span.attributes["tollgate.operation"])
			require.Equal(t, metav1.NamespaceDefault, span.attributes["tollgate.namespace"])
			require.Equal(t, "1", span.attributes["tollgate.policies"])
			require.NotEmpty(t, span.attributes["tollgate.request.uid"])
			return nil
		}
		return fmt.Errorf("spans %+v", spans)
	})
}
