package callers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
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
		spans := traces.of("review", pod.Name)
		for _, span := range spans {
			if span.attributes["tollgate.verdict"] != "denied" {
				continue
			}
			if !traces.sent(span.parent) {
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

// The API server begins a trace of its own for clients that are not in system:masters, with a link to
// the span of the client.
func TestAnEvictionIsASpanWithItsRequestsBelow(t *testing.T) {
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	node := nodes.Items[0].Name
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "quarantined"},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "image"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	out, err := install.Kubectl(t.Context(), shared, "taint", "node", node, "traced.example.com/y=broken:NoExecute")
	require.NoError(t, err, string(out))
	t.Cleanup(func() {
		out, err := install.Kubectl(context.WithoutCancel(t.Context()), shared, "taint", "node", node, "traced.example.com/y-")
		require.NoError(t, err, string(out))
	})
	var eviction span
	becomes(t, "the eviction is traced", func() error {
		spans := traces.of("eviction", pod.Name)
		for _, eviction = range spans {
			if eviction.attributes["tollgate.result"] == "evicted" {
				return nil
			}
		}
		return fmt.Errorf("spans %+v", spans)
	})
	late := eviction.attributes["tollgate.late_seconds"]
	delete(eviction.attributes, "tollgate.late_seconds")
	require.Equal(t, map[string]string{
		"tollgate.namespace": pod.Namespace, "tollgate.name": pod.Name, "tollgate.uid": string(pod.UID), "tollgate.node": node,
		"tollgate.taint": "traced.example.com/y=broken:NoExecute", "tollgate.source.kind": "node", "tollgate.source.name": node,
		"tollgate.method": "delete", "tollgate.result": "evicted",
	}, eviction.attributes)
	require.NotEmpty(t, late)
	becomes(t, "each request is below, and the API server has linked it", func() error {
		below := traces.below(eviction.id)
		for _, method := range []string{http.MethodPatch, http.MethodDelete} {
			at := slices.IndexFunc(below, func(s span) bool { return s.name == "HTTP "+method })
			if at < 0 {
				return fmt.Errorf("no %s in %+v", method, below)
			}
			request, ok := traces.linked(below[at].id)
			if !ok {
				return fmt.Errorf("no span of the API server is linked to %+v", below[at])
			}
			require.Contains(t, request.name, "/pods/{:name}")
		}
		confirm := slices.IndexFunc(below, func(s span) bool { return s.name == "confirm" })
		if confirm < 0 {
			return fmt.Errorf("the node was not read in %+v", below)
		}
		reading := traces.below(below[confirm].id)
		if len(reading) != 1 || reading[0].name != "HTTP GET" {
			return fmt.Errorf("below the reading of the node is %+v", reading)
		}
		return nil
	})
}
