package policies

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/policy"
)

func TestD04AReviewSeesOneSetOfPoliciesWhileTheyChange(t *testing.T) {
	const key = "swap.example.com/x"
	namespaces(t, "swap")
	// One of the two is granted at any time, in the same policy: who sees half of a
	// change finds none or both.
	grant := func(name string) string {
		return fmt.Sprintf("kind: TolerationPolicy\nmetadata: {name: swap}\nspec: {taints: [{key: %s}], grants: [{subjects: [{kind: User, name: %s}]}]}", key, name)
	}
	enforce(t, grant("alice"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	outcomes := make(chan error, 1_000)
	for _, who := range []*person{tenant(t, "alice"), tenant(t, "bob")} {
		group.Go(func() {
			for ctx.Err() == nil {
				_, err := who.CoreV1().Pods("swap").Create(ctx, podWith(exists(key, "")), metav1.CreateOptions{DryRun: dryRun})
				if ctx.Err() == nil && err != nil && !containsAll(err.Error(), []string{"TolerationPolicy/swap", "not granted"}) {
					outcomes <- err
					return
				}
			}
		})
	}
	for i := range 20 {
		change(t, "TolerationPolicy", "swap", func(spec map[string]any) {
			name := []string{"bob", "alice"}[i%2]
			spec["grants"] = []any{map[string]any{"subjects": []any{map[string]any{"kind": "User", "name": name}}}}
		})
		current, other := []string{"bob", "alice"}[i%2], []string{"alice", "bob"}[i%2]
		require.NoError(t, tenant(t, current).admit(t, "swap", podWith(exists(key, ""))))
		requireRefused(t, tenant(t, other).admit(t, "swap", podWith(exists(key, ""))), policy.TolerationNotGranted)
	}
	stop()
	group.Wait()
	select {
	case err := <-outcomes:
		require.NoError(t, err, "a review that is neither granted nor refused by the policy")
	default:
	}
}

func TestD04TheAuditLogSaysByWhichPoliciesAVerdictCame(t *testing.T) {
	namespaces(t, "version")
	enforce(t, "kind: TolerationPolicy\nmetadata: {name: version}\nspec: {taints: [{key: version.example.com/x}], grants: [{namespaces: [version]}]}")
	version := func(name string) string {
		tenant(t, "alice").createPod(t, "version", podNamed(name, exists("version.example.com/x", "")))
		events := audited(t, "pods", "version", name)
		require.NotEmpty(t, events)
		return events[0].Annotations["validate.tollgate.dev/policies"]
	}
	first := version("first")
	require.NotEmpty(t, first)
	require.Equal(t, first, version("second"))
	change(t, "TolerationPolicy", "version", func(spec map[string]any) { spec["message"] = "changed" })
	require.NotEqual(t, first, version("third"))
}

// manyPolicies is how many policies TestD02 writes: the row asks for 10,000, which make
// soak does, and which take a minute to write.
func manyPolicies(t *testing.T) int {
	t.Helper()
	text := os.Getenv("TOLLGATE_POLICIES")
	if text == "" {
		return 1_000
	}
	count, err := strconv.Atoi(text)
	require.NoError(t, err, "TOLLGATE_POLICIES")
	return count
}

func TestD02ThousandsOfPoliciesAreInForceSoonAndCheap(t *testing.T) {
	count := manyPolicies(t)
	namespaces(t, "many")
	client := admin(t).resource(t, ofTollgate("TolerationPolicy"), "")
	terminate(t) // so that they are read at once, as after a restart
	putBack := takeOutOfTheWay(t)
	t.Cleanup(func() {
		require.NoError(t, client.DeleteCollection(afterwards(t), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "d02=many"}))
		waitInForce(t)
	})
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(parallel)
	for i := range count {
		group.Go(func() error {
			_, err := client.Create(ctx, policyFor(fmt.Sprintf("many-%d", i)), metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(t, group.Wait())
	putBack()
	start := time.Now()
	require.NoError(t, tollgate.Start(t.Context()))
	waitInForce(t)
	require.Less(t, time.Since(start), time.Minute, "most of it is the process and its certificate")

	alice := tenant(t, "alice")
	waitAsked(t)
	requireRefused(t, alice.admit(t, "many", podWith(exists(fmt.Sprintf("many.example.com/many-%d", count-1), ""))), policy.TolerationNotGranted, fmt.Sprintf("TolerationPolicy/many-%d", count-1))
	err := alice.admit(t, "many", podWith(exists("", "")))
	requireRefused(t, err, policy.MoreFindings)
	require.Less(t, len(err.Error()), 8<<10, "a refusal by thousands is still one to read")
}

// policyFor returns a policy that guards a key of its own.
func policyFor(name string) *unstructured.Unstructured {
	policy := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"taints": []any{map[string]any{"key": "many.example.com/" + name}}},
	}}
	policy.SetAPIVersion("tollgate.dev/v1alpha1")
	policy.SetKind("TolerationPolicy")
	policy.SetName(name)
	policy.SetLabels(map[string]string{"d02": "many"})
	return policy
}

// takeOutOfTheWay removes the validating webhooks, as one does in an emergency, and
// returns when the API server asks nobody any more, and what puts them back.
func takeOutOfTheWay(t *testing.T) (putBack func()) {
	t.Helper()
	mustKubectl(t, "delete", "validatingwebhookconfiguration", "tollgate")
	putBack = sync.OnceFunc(func() {
		require.NoError(t, install.Apply(afterwards(t), shared, filepath.Join(programs.Root, "deploy", "overlays", "outside")))
	})
	t.Cleanup(putBack)
	becomes(t, "the API server has heard that nobody is asked", func() error { return writeUnjudged(t) })
	return putBack
}

// writeUnjudged tries to write a policy, as a dry run, to which only Tollgate objects.
func writeUnjudged(t *testing.T) error {
	t.Helper()
	object := objects(t, "kind: TolerationPolicy\nmetadata: {name: unjudged}\nspec: {taints: [{key: unjudged.example.com/x}], messageExpression: \"1\"}")[0]
	_, err := admin(t).resource(t, ofTollgate("TolerationPolicy"), "").Create(t.Context(), object, metav1.CreateOptions{DryRun: dryRun})
	return err
}

// waitAsked returns when the API server asks Tollgate again after the webhooks were put
// back. They come with the URL of an example, and Tollgate writes its own.
func waitAsked(t *testing.T) {
	t.Helper()
	becomes(t, "the API server asks Tollgate to judge", func() error {
		if err := writeUnjudged(t); err == nil || !containsAll(err.Error(), []string{"denied the request"}) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	eventually(t, "and to give taints their times", func(ctx context.Context) error {
		tainted := nodeObject("asked", nil, noSchedule("asked.example.com/x", ""))
		node, err := admin(t).CoreV1().Nodes().Create(ctx, tainted, metav1.CreateOptions{DryRun: dryRun})
		if err == nil && taintOf(node, "asked.example.com/x", corev1.TaintEffectNoSchedule).TimeAdded == nil {
			err = errStill
		}
		return err
	})
}

func TestD05PoliciesOutliveTheirDefinition(t *testing.T) {
	const key = "outlives.example.com/x"
	namespaces(t, "outlives")
	enforce(t, "kind: TolerationPolicy\nmetadata: {name: outlives}\nspec: {taints: [{key: "+key+"}]}")
	alice := tenant(t, "alice")
	crd := filepath.Join(programs.Root, "deploy", "crd")
	t.Cleanup(func() {
		require.NoError(t, install.Apply(afterwards(t), shared, crd))
		waitInForce(t)
	})
	mustKubectl(t, "delete", "crd", "tolerationpolicies.tollgate.dev")
	t.Run("without it the last good set stays in force, and that is said", func(t *testing.T) {
		for range 20 {
			requireRefused(t, alice.admit(t, "outlives", podWith(exists(key, ""))), policy.TolerationNotGranted, "TolerationPolicy/outlives")
		}
		eventually(t, "an alarm", func(ctx context.Context) error {
			stale, err := metric(ctx, "tollgate_policies_stale", `kind="TolerationPolicy"`)
			if err == nil && stale != 1 {
				err = fmt.Errorf("it is %v", stale)
			}
			return err
		})
	})
	t.Run("when it is back, what is stored counts", func(t *testing.T) {
		require.NoError(t, install.Apply(t.Context(), shared, crd))
		waitInForce(t)
		require.NoError(t, alice.admit(t, "outlives", podWith(exists(key, ""))))
	})
	t.Run("the last policy that somebody deletes is gone", func(t *testing.T) {
		enforce(t, "kind: TolerationPolicy\nmetadata: {name: outlives-again}\nspec: {taints: [{key: "+key+"}]}")
		requireRefused(t, alice.admit(t, "outlives", podWith(exists(key, ""))), policy.TolerationNotGranted)
		withdraw(t, "TolerationPolicy", "outlives-again")
		require.NoError(t, alice.admit(t, "outlives", podWith(exists(key, ""))))
	})
}
