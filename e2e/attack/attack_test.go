package attack

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

const (
	// durationVariable says how long the attack lasts; ordinary reviews are measured as long
	// before it.
	durationVariable = "TOLLGATE_ATTACK"
	shortly          = 5 * time.Second
	// slowdown is how many times as long ordinary reviews may take during a long attack.
	slowdown = 2

	taintKey = "attack.example.com/gpu"
	// Namespaces of ordinary users, and of the attacker.
	ordinary = "ordinary"
	greedy   = "greedy"
)

// duration returns how long the attack lasts, and whether times are asserted.
func duration(t *testing.T) (lasts time.Duration, measured bool) {
	t.Helper()
	text := os.Getenv(durationVariable)
	if text == "" {
		return shortly, false
	}
	lasts, err := time.ParseDuration(text)
	require.NoError(t, err, durationVariable)
	return lasts, true
}

// requireMeasured skips a test that takes all processors and much memory, where other tests share them.
func requireMeasured(t *testing.T) {
	t.Helper()
	if _, measured := duration(t); !measured {
		t.Skip("it takes the whole machine: make test-attack")
	}
}

// An attacker's pod holds 200 streams open, sends half headers and asks 60 questions about
// permissions a second. None of the reviews of others fails for it.
func TestAnAttackerOnThePortKeepsNobodyFromAReview(t *testing.T) {
	lasts, measured := duration(t)
	guard(t)
	roots := caBundle(t)
	user := newCaller(roots, "127.0.0.1")
	waitGuarded(t, user)

	// By turns: what else the machine does meanwhile slows down both.
	rounds := 1
	if measured {
		rounds = 6
	}
	alone, attacked, attack := &measurement{}, &measurement{}, newAttack(t, roots)
	for range rounds {
		alone.take(t, user, lasts/time.Duration(rounds))
		attack.start(t)
		attacked.take(t, user, lasts/time.Duration(rounds))
		attack.stop()
	}

	t.Logf("alone:    %v", alone)
	t.Logf("attacked: %v", attacked)
	t.Logf("attacker: %v", attack)
	attack.requireFierce(t, lasts)
	require.Empty(t, alone.failures())
	require.Empty(t, attacked.failures())
	if measured {
		require.LessOrEqual(t, attacked.percentile(99), slowdown*alone.percentile(99))
	}
}

// guard makes the namespaces, and lets the pods of one of them tolerate a taint by RBAC.
func guard(t *testing.T) {
	t.Helper()
	client, err := kubernetes.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	for _, name := range []string{ordinary, greedy} {
		_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err = client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "tolerates"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"tollgate.dev"}, Resources: []string{"taints"}, ResourceNames: []string{taintKey}, Verbs: []string{"tolerate"},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tolerates"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + ordinary}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tolerates"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	objects, err := dynamic.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	policies := objects.Resource(schema.GroupVersionResource{Group: "tollgate.dev", Version: "v1alpha1", Resource: "tolerationpolicies"})
	_, err = policies.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tollgate.dev/v1alpha1", "kind": "TolerationPolicy",
		"metadata": map[string]any{"name": "attacked"},
		"spec": map[string]any{
			"taints": []any{map[string]any{"key": taintKey}},
			"grants": []any{map[string]any{"rbac": true}},
		},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// waitGuarded returns when the policy is in force, and RBAC grants what it grants.
func waitGuarded(t *testing.T, c *caller) {
	t.Helper()
	var last error
	tries := 0
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		tries++
		name := fmt.Sprintf("probe-%d", tries)
		refused, err := c.ask(ctx, review(greedy, name, taintKey))
		granted, grantErr := c.ask(ctx, review(ordinary, name, taintKey))
		last = fmt.Errorf("allowed in %s: %t, %w; in %s: %t, %w", greedy, refused, err, ordinary, granted, grantErr)
		return err == nil && grantErr == nil && !refused && granted, nil
	})
	require.NoError(t, err, "%v", last)
}
