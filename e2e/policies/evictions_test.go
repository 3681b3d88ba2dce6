package policies

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/policy"
)

// labelled gives a pod a label.
func labelled(pod *corev1.Pod, key, value string) *corev1.Pod {
	pod.Labels = map[string]string{key: value}
	return pod
}

// neverDisrupted guards the pods with a label by a budget that lets none go.
func neverDisrupted(t *testing.T, namespace, key, value string) {
	t.Helper()
	budgets := admin(t).PolicyV1().PodDisruptionBudgets(namespace)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	_, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: value},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: selector},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "the budget is known", func(ctx context.Context) error {
		budget, err := budgets.Get(ctx, value, metav1.GetOptions{})
		if err == nil && (budget.Status.CurrentHealthy != 1 || budget.Status.ObservedGeneration == 0) {
			err = fmt.Errorf("status %+v", budget.Status)
		}
		return err
	})
}

// waitHeld returns when an EvictionPolicy says that so many pods are held, and why.
func waitHeld(t *testing.T, name string, want int64, reason string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s holds %d", name, want), func(ctx context.Context) error {
		found, err := admin(t).resource(t, ofTollgate("EvictionPolicy"), "").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		held, _, _ := unstructured.NestedInt64(found.Object, "status", "held")
		conditions, _, _ := unstructured.NestedSlice(found.Object, "status", "conditions")
		for _, condition := range conditions {
			if c, ok := condition.(map[string]any); ok && c["type"] == "Held" && c["reason"] == reason && held == want {
				return nil
			}
		}
		return fmt.Errorf("held %d, conditions %v", held, conditions)
	})
}

func TestSampleOfGentleEvictions(t *testing.T) {
	const name = "gentle-node"
	namespaces(t, "gentle")
	node(t, name, nil)
	sample(t, "gentle-eviction.yaml")
	alice := tenant(t, "alice")
	for _, pod := range []*corev1.Pod{
		podNamed("free"), labelled(podNamed("guarded"), "app", "guarded"), labelled(podNamed("stays"), "maintenance.example.com/stays", "true"),
	} {
		alice.createPod(t, "gentle", onNode(pod, name))
		waitRuns(t, "gentle", pod.Name)
	}
	neverDisrupted(t, "gentle", "app", "guarded")
	require.NoError(t, alice.taintNode(t, name, noExecute("maintenance.example.com/kernel", "")))
	t.Run("who is free goes", func(t *testing.T) { waitGone(t, "gentle", "free") })
	t.Run("who is protected stays, and the policy says so", func(t *testing.T) {
		waitHeld(t, "gentle", 1, "Protected")
		require.Nil(t, podNow(t, "gentle", "stays").DeletionTimestamp)
	})
	t.Run("who is guarded stays, and the evictor has asked", func(t *testing.T) {
		eventually(t, "the budget has refused", func(ctx context.Context) error {
			held, err := metric(ctx, "tollgate_evictions_held", `reason="budget"`)
			if err == nil && held != 1 {
				err = fmt.Errorf("%v are said to be refused by budgets", held)
			}
			return err
		})
		require.Nil(t, podNow(t, "gentle", "guarded").DeletionTimestamp)
	})
	t.Run("until the time for that is up", func(t *testing.T) {
		change(t, "EvictionPolicy", "gentle", func(spec map[string]any) { spec["deleteAfter"] = "1s" })
		waitGone(t, "gentle", "guarded")
		require.Nil(t, podNow(t, "gentle", "stays").DeletionTimestamp)
	})
}

func TestSampleOfStoppedEvictions(t *testing.T) {
	const name = "stopped-node"
	namespaces(t, "stopped")
	node(t, name, nil)
	alice := tenant(t, "alice")
	alice.createPod(t, "stopped", onNode(podNamed("stays"), name))
	t.Run("while it is there nobody goes", func(t *testing.T) {
		sample(t, "stop-evictions.yaml")
		require.NoError(t, alice.taintNode(t, name, noExecute("stopped.example.com/broken", "")))
		waitHeld(t, "stop-evictions", 1, "Paused")
		require.Nil(t, podNow(t, "stopped", "stays").DeletionTimestamp)
	})
	t.Run("when it is gone evictions go on", func(t *testing.T) { waitGone(t, "stopped", "stays") })
}

// limitOf returns how many pods a breaker that holds had to let go.
func limitOf(ctx context.Context, t *testing.T, name string) (int, error) {
	t.Helper()
	found, err := admin(t).resource(t, ofTollgate("EvictionPolicy"), "").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	limit, ok, err := unstructured.NestedInt64(found.Object, "status", "breaker", "limit")
	if err == nil && !ok {
		err = errors.New("the breaker does not hold")
	}
	return int(limit), err
}

func TestTheDefaultThatShipsHoldsWhatIsTooMuch(t *testing.T) {
	const name, count = "default-node", 20
	// live counts the pods that Tollgate takes a fifth of: those on nodes, and not those of
	// tests that came before, which are on their way out.
	live := func(ctx context.Context) (int, error) {
		list, err := admin(t).CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return 0, err
		}
		return len(slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
			over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
			return pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || over
		})), nil
	}
	// Of a cluster with others a fifth is less and less while they go.
	eventually(t, "no other pods", func(ctx context.Context) error {
		others, err := live(ctx)
		if err == nil && others > 0 {
			err = fmt.Errorf("there are %d", others)
		}
		return err
	})
	namespaces(t, "by-default")
	node(t, name, nil)
	createPods(t, "by-default", count, func(int) *corev1.Pod { return onNode(podWith(), name) })
	for _, namespace := range []string{metav1.NamespaceSystem, "by-default"} {
		critical := onNode(podNamed("critical"), name)
		critical.Spec.PriorityClassName = "system-node-critical"
		admin(t).createPod(t, namespace, critical)
	}
	waitForetold(t, admin(t), name, noExecute("default.example.com/broken", ""), fmt.Sprintf("evicts %d pods", count+2))
	directory := filepath.Join(programs.Root, "deploy", "defaults")
	mustKubectl(t, "apply", "--validate=strict", "-k", directory)
	t.Cleanup(func() {
		mustKubectl(t, "delete", "--ignore-not-found", "-k", directory)
		waitInForce(t)
	})
	waitReadyPolicy(t, "EvictionPolicy", "default")
	waitInForce(t)

	here := func(ctx context.Context) (int, error) {
		list, err := admin(t).CoreV1().Pods("by-default").List(ctx, metav1.ListOptions{})
		return len(list.Items), err
	}
	require.NoError(t, admin(t).taintNode(t, name, noExecute("default.example.com/broken", "")))
	var limit int
	eventually(t, "the default holds the rest", func(ctx context.Context) error {
		left, err := here(ctx)
		if err != nil {
			return err
		}
		if limit, err = limitOf(ctx, t, "default"); err != nil {
			return err
		}
		if count+1-left != limit {
			return fmt.Errorf("%d of %d are gone, and it is to be %d", count+1-left, count+1, limit)
		}
		return nil
	})
	alive, err := live(t.Context())
	require.NoError(t, err)
	require.InDelta(t, max(1, (alive+limit)/5), limit, 2, "a fifth of the pods, of which those that go may be counted twice")
	waitHeld(t, "default", int64(count+2-limit), "BreakerTripped")
	t.Run("an approval lets them go, and not who is protected, which a priority class alone is not", func(t *testing.T) {
		approval := objects(t, `
kind: EvictionApproval
metadata: {name: by-default}
spec: {node: `+name+`, taint: {key: default.example.com/broken, effect: NoExecute}, maxPods: 100, expiresAfter: 1h}
`)[0]
		require.NoError(t, admin(t).write(t, approval))
		t.Cleanup(func() {
			require.NoError(t, admin(t).resource(t, ofTollgate("EvictionApproval"), "").Delete(afterwards(t), "by-default", metav1.DeleteOptions{}))
		})
		eventually(t, "none is left", func(ctx context.Context) error {
			left, err := here(ctx)
			if err == nil && left != 0 {
				err = fmt.Errorf("%d are left", left)
			}
			return err
		})
		require.Nil(t, podNow(t, metav1.NamespaceSystem, "critical").DeletionTimestamp)
	})
	t.Run("without a policy all go, as Kubernetes has it", func(t *testing.T) {
		mustKubectl(t, "delete", "-k", directory)
		waitGone(t, metav1.NamespaceSystem, "critical")
	})
}

func TestD03EvictionPoliciesThatAreNotValidAreRefused(t *testing.T) {
	const head = "kind: EvictionPolicy\nmetadata: {name: not-valid}\nspec: "
	for name, tt := range map[string]struct{ spec, names string }{
		"effects that evict nobody":          {`{taints: [{key: a, effects: [NoSchedule]}]}`, "spec.taints[0].effects"},
		"device classes":                     {`{taints: [{target: Device, key: a, deviceClasses: [c]}]}`, "use drivers"},
		"a window for every key":             {`{taints: [{key: "*"}], inject: {seconds: 60}}`, "give the key in full"},
		"a field by its former name":         {`{taints: [{key: a}], window: {seconds: 60}}`, "window was renamed: write inject"},
		"pods that cannot be selected":       {`{taints: [{key: a}], podSelector: {matchExpressions: [{key: a, operator: Near}]}}`, "spec.podSelector"},
		"protection of everybody":            {`{taints: [{key: a}], protect: {podSelector: {}}}`, "set paused"},
		"a time that needs a budget":         {`{taints: [{key: a}], deleteAfter: 1h}`, "needs method Evict"},
		"a mark of another method":           {`{taints: [{key: a}], method: Evict, mark: WhileTerminating}`, "needs method Delete"},
		"a mark that is none":                {`{taints: [{key: a}], mark: Later}`, "Unsupported value"},
		"a negative time":                    {`{taints: [{key: a}], method: Evict, deleteAfter: -1s}`, "not negative"},
		"a breaker without a limit":          {`{taints: [{key: a}], breaker: {window: 10m}}`, "give maxPods, maxPercent or both"},
		"a window of a breaker that is long": {`{taints: [{key: a}], breaker: {maxPods: 1, window: 25h}}`, "between 10s and 24h"},
		"more pods than there are":           {`{taints: [{key: a}], breaker: {maxPercent: 101}}`, "maxPercent"},
		"no pace":                            {`{taints: [{key: a}], pace: {podsPerSecond: 0}}`, "podsPerSecond"},
		"a method that is none":              {`{taints: [{key: a}], method: Ask}`, "method"},
		"no taints":                          {`{taints: []}`, "taints"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, admin(t).write(t, objects(t, head+tt.spec)[0]), tt.names)
		})
	}
	t.Run("who wrote it finds the reason in the list of refusals", func(t *testing.T) {
		err := admin(t).write(t, objects(t, head+`{taints: [{key: a}], protect: {podSelector: {}}}`)[0])
		requireRefused(t, err, policy.Invalid, "spec.protect.podSelector")
	})
}

func TestD03AnEvictionPolicyThatIsStoredAllTheSameHoldsWhatItMayMean(t *testing.T) {
	const name = "stored-node"
	namespaces(t, "stored")
	node(t, name, nil)
	alice := tenant(t, "alice")
	alice.createPod(t, "stored", onNode(podNamed("meant"), name))
	alice.createPod(t, "stored", onNode(podNamed("other"), name))
	putBack := takeOutOfTheWay(t)
	require.NoError(t, admin(t).write(t, objects(t, `
kind: EvictionPolicy
metadata: {name: stored}
spec: {taints: [{key: stored.example.com/a}], podSelector: {matchExpressions: [{key: app, operator: Near, values: [web]}]}}
`)[0]), "it is stored while the webhooks are away")
	t.Cleanup(func() { withdraw(t, "EvictionPolicy", "stored") })
	putBack()
	waitAsked(t)
	eventually(t, "its status says why", func(ctx context.Context) error {
		found, err := admin(t).resource(t, ofTollgate("EvictionPolicy"), "").Get(ctx, "stored", metav1.GetOptions{})
		if err == nil && !containsAll(string(encode(t, found.Object["status"])), []string{"PartlyInForce", "spec.podSelector"}) {
			err = fmt.Errorf("status %v", found.Object["status"])
		}
		return err
	})
	waitInForce(t)
	require.NoError(t, alice.taintNode(t, name, noExecute("stored.example.com/a", "")))
	waitHeld(t, "stored", 2, "Paused")
	require.Nil(t, podNow(t, "stored", "meant").DeletionTimestamp)
	t.Run("what it does not select goes", func(t *testing.T) {
		require.NoError(t, alice.taintNode(t, name, noExecute("stored.example.com/b", "")))
		waitGone(t, "stored", "meant")
		waitGone(t, "stored", "other")
	})
}

func TestD05EvictionPoliciesOutliveTheirDefinition(t *testing.T) {
	const name = "outlived-node"
	namespaces(t, "outlived")
	node(t, name, nil)
	enforce(t, "kind: EvictionPolicy\nmetadata: {name: outlived}\nspec: {taints: [{key: outlived.example.com/x}], paused: true}")
	alice := tenant(t, "alice")
	alice.createPod(t, "outlived", onNode(podNamed("pod"), name))
	crd := filepath.Join(programs.Root, "deploy", "crd")
	t.Cleanup(func() {
		require.NoError(t, install.Apply(afterwards(t), shared, crd))
		waitInForce(t)
	})
	mustKubectl(t, "delete", "crd", "evictionpolicies.tollgate.dev")
	eventually(t, "an alarm", func(ctx context.Context) error {
		stale, err := metric(ctx, "tollgate_policies_stale", `kind="EvictionPolicy"`)
		if err == nil && stale != 1 {
			err = fmt.Errorf("it is %v", stale)
		}
		return err
	})
	require.NoError(t, alice.taintNode(t, name, noExecute("outlived.example.com/x", "")))
	eventually(t, "the pod is held", func(ctx context.Context) error {
		held, err := metric(ctx, "tollgate_evictions_held", `reason="paused"`)
		if err == nil && held != 1 {
			err = fmt.Errorf("%v are held", held)
		}
		return err
	})
	require.Nil(t, podNow(t, "outlived", "pod").DeletionTimestamp)
	require.NoError(t, install.Apply(t.Context(), shared, crd))
	waitGone(t, "outlived", "pod")
}

func TestAPolicyThatIsChangedCountsForWhoIsHeld(t *testing.T) {
	const name = "paused-node"
	namespaces(t, "paused")
	node(t, name, nil)
	enforce(t, "kind: EvictionPolicy\nmetadata: {name: paused}\nspec: {taints: [{key: paused.example.com/x}], paused: true}")
	alice := tenant(t, "alice")
	alice.createPod(t, "paused", onNode(podNamed("pod"), name))
	require.NoError(t, alice.taintNode(t, name, noExecute("paused.example.com/x", "")))
	waitHeld(t, "paused", 1, "Paused")
	_, err := admin(t).resource(t, ofTollgate("EvictionPolicy"), "").
		Patch(t.Context(), "paused", types.MergePatchType, []byte(`{"spec":{"paused":false}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	waitGone(t, "paused", "pod")
	waitNoneHeld(t, "paused")
}

// waitNoneHeld returns when an EvictionPolicy says that it holds nobody.
func waitNoneHeld(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" holds nobody", func(ctx context.Context) error {
		found, err := admin(t).resource(t, ofTollgate("EvictionPolicy"), "").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if held, _, _ := unstructured.NestedInt64(found.Object, "status", "held"); held != 0 {
			return fmt.Errorf("%d are held", held)
		}
		return nil
	})
}
