package installing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

// patience is far above what anything here takes.
const patience = 2 * time.Minute

func client(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	return client
}

// kubectl runs kubectl as an administrator, who sees no error.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := install.Kubectl(context.WithoutCancel(t.Context()), shared, args...)
	require.NoError(t, err, "kubectl %s: %s", strings.Join(args, " "), out)
	return string(out)
}

// apply applies manifests that may be refused while Tollgate starts.
func apply(t *testing.T, manifests string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifests.yaml")
	require.NoError(t, os.WriteFile(file, []byte(manifests), 0o600))
	kubectl(t, "apply", "-f", file)
}

// namespaceOf creates a namespace that goes with the test.
func namespaceOf(t *testing.T) string {
	t.Helper()
	name, err := shared.CreateNamespace(t.Context(), "installing-")
	require.NoError(t, err)
	t.Cleanup(func() { kubectl(t, "delete", "namespace", name, "--wait=false") })
	return name
}

func podOf(tolerations ...corev1.Toleration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}, Tolerations: tolerations},
	}
}

// judged is a pod that is not plain: the API server calls Tollgate for it. No policy guards what it
// tolerates.
func judged() *corev1.Pod {
	return podOf(corev1.Toleration{Key: "judged.example.com/a", Operator: corev1.TolerationOpExists})
}

// create creates a pod and does not keep it.
func create(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	_, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// eventually fails the test if the condition does not come true, and says what was in its
// way last.
func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	var last error
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		if last = condition(); last == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.NoError(t, last, what)
}

// registered returns the number of webhooks that there are.
func registered(t *testing.T) int {
	t.Helper()
	webhooks := client(t).AdmissionregistrationV1()
	validating, err := webhooks.ValidatingWebhookConfigurations().Get(t.Context(), "tollgate", metav1.GetOptions{})
	require.NoError(t, err)
	mutating, err := webhooks.MutatingWebhookConfigurations().Get(t.Context(), "tollgate", metav1.GetOptions{})
	require.NoError(t, err)
	return len(validating.Webhooks) + len(mutating.Webhooks)
}

// admits waits until the webhooks are registered, pods are admitted, and the webhooks answer for it:
// all are as an administrator finds them after a rollout.
func admits(t *testing.T) {
	t.Helper()
	kubectl(t, "rollout", "status", "deployment/tollgate", "-n", system, "--timeout="+patience.String())
	client := client(t)
	eventually(t, "the webhooks are registered", func() error {
		if registered(t) == 0 {
			return errors.New("there are none")
		}
		return nil
	})
	eventually(t, "the webhooks answer", func() error {
		return create(t.Context(), client, judged())
	})
}

// freeNode is a node without Tollgate and without a taint.
func freeNode(t *testing.T) string {
	t.Helper()
	client := client(t)
	pods, err := client.CoreV1().Pods(system).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, node := range nodes.Items {
		taken := slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Spec.NodeName == node.Name })
		if !taken && len(node.Spec.Taints) == 0 {
			return node.Name
		}
	}
	t.Fatal("Tollgate or a taint is on every node")
	return ""
}

const guardedPolicy = `
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: installing-guarded}
spec:
  taints: [{key: guarded.example.com/*}]
  validationActions: [Deny]
`

// works shows that Tollgate does what it is for: a policy refuses, a preview warns, and a
// taint evicts.
func works(t *testing.T) {
	t.Helper()
	client := client(t)
	eventually(t, "the policy is taken", func() error {
		file := filepath.Join(t.TempDir(), "policy.yaml")
		require.NoError(t, os.WriteFile(file, []byte(guardedPolicy), 0o600))
		out, err := install.Kubectl(t.Context(), shared, "apply", "-f", file)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	eventually(t, "the policy refuses", func() error {
		switch err := create(t.Context(), client, podOf(corev1.Toleration{Key: "guarded.example.com/a", Operator: corev1.TolerationOpExists})); {
		case err == nil:
			return errors.New("a pod is created")
		case !strings.Contains(err.Error(), "installing-guarded"):
			return fmt.Errorf("it is refused for another reason: %w", err)
		}
		return nil
	})

	node, namespace := freeNode(t), namespaceOf(t)
	pod := podOf()
	pod.Spec.NodeName = node
	pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "the preview warns", func() error {
		out := kubectl(t, "taint", "node", node, "maintenance=:NoExecute", "--dry-run=server")
		if !strings.Contains(out, "Warning: ") || !strings.Contains(out, "evicts 1 pod") {
			return fmt.Errorf("kubectl prints %q", out)
		}
		return nil
	})
	kubectl(t, "taint", "node", node, "maintenance=:NoExecute")
	defer kubectl(t, "taint", "node", node, "maintenance-")
	eventually(t, "the taint evicts", func() error {
		_, err := client.CoreV1().Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			return errors.New("the pod is there")
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get pod: %w", err)
		}
		return nil
	})
}
