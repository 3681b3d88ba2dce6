package export

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// That the handler which the other test asks in its own process is what an installed Tollgate
// says is shown by a sample.
func TestAnInstalledTollgateSaysWhatItsHandlerSays(t *testing.T) {
	d := newDice(t)
	world, everybody := furnish(t, d), crowd{}
	requests := world.requests(t, d, everybody, 60, 20)
	found := policies{
		tolerations: []v1alpha1.TolerationPolicy{
			d.tolerationPolicy("a"), d.tolerationPolicy("b"),
			// What is made up may grant everything, or warn only.
			{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: v1alpha1.TolerationPolicySpec{Taints: []v1alpha1.TaintSelector{{Key: "dedicated"}}}},
		},
		taints: []v1alpha1.TaintPolicy{untimed(t, d)},
	}
	t.Cleanup(func() { uninstall(t) })
	installed, err := install.Install(t.Context(), shared, install.Options{Programs: programs})
	require.NoError(t, err)
	require.True(t, installed.Alive())
	for i := range found.tolerations {
		enforce(t, "TolerationPolicy", "tolerationpolicies", &found.tolerations[i])
	}
	for i := range found.taints {
		enforce(t, "TaintPolicy", "taintpolicies", &found.taints[i])
	}
	by := handler(t, &found)
	var n tally
	for _, r := range requests {
		_, got := everybody.send(t, r)
		n.compare(t, r, judge(t, by, r), got, &found)
	}
	t.Logf("%+v", n)
	require.Positive(t, n.Denied)
}

// uninstall ends Tollgate, and returns when the API server asks it no more: the other test
// is about a cluster without webhooks.
func uninstall(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	configurations := admin(t).AdmissionregistrationV1()
	require.NoError(t, configurations.ValidatingWebhookConfigurations().Delete(ctx, install.Name, metav1.DeleteOptions{}))
	require.NoError(t, configurations.MutatingWebhookConfigurations().Delete(ctx, install.Name, metav1.DeleteOptions{}))
	require.NoError(t, shared.Kill(ctx, install.Name))
	eventually(t, "pods are let in without Tollgate", func(ctx context.Context) error {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "without-tollgate"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/c"}}},
		}
		_, err := admin(t).CoreV1().Pods(namespaces[0]).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// untimed returns a TaintPolicy that does not look at when taints were added: an installed
// Tollgate gives them that before it judges, and the handler is asked about what the API
// server makes of a node without Tollgate.
func untimed(t *testing.T, d dice) v1alpha1.TaintPolicy {
	t.Helper()
	for {
		if policy := d.taintPolicy("c"); !strings.Contains(text(t, policy), "timeAdded") {
			return policy
		}
	}
}

// enforce creates a policy for the length of the test, and returns when it is in force.
func enforce(t *testing.T, kind, resource string, object runtime.Object) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	policy := &unstructured.Unstructured{Object: content}
	policy.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	unstructured.RemoveNestedField(policy.Object, "status")
	to := objectsClient(t).Resource(schema.GroupVersionResource{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: resource})
	_, err = to.Create(t.Context(), policy, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, to.Delete(context.WithoutCancel(t.Context()), policy.GetName(), metav1.DeleteOptions{}))
	})
	eventually(t, kind+" "+policy.GetName()+" is in force", func(ctx context.Context) error {
		now, err := to.Get(ctx, policy.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(now.Object, "status", "conditions")
		for _, condition := range conditions {
			c, ok := condition.(map[string]any)
			if ok && c["type"] == v1alpha1.ConditionReady && c["status"] == "True" && c["observedGeneration"] == now.GetGeneration() {
				return nil
			}
		}
		return fmt.Errorf("conditions %v, %w", conditions, err)
	})
}
