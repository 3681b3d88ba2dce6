package policies

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/tollgate-dev/tollgate/policy"
)

// sample applies a file of deploy/samples as the administrator, as a user would, for
// the length of the test, and returns when its policies are in force. It returns the
// path of the file.
func sample(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(programs.Root, "deploy", "samples", name)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	waitNamespacesGone(t, objects(t, string(content)))
	mustKubectl(t, "apply", "--validate=strict", "-f", file)
	t.Cleanup(func() {
		mustKubectl(t, "delete", "--ignore-not-found", "--wait=false", "-f", file)
		waitInForce(t)
	})
	for _, object := range objects(t, string(content)) {
		if _, ours := resources[object.GetKind()]; ours {
			waitReadyPolicy(t, object.GetKind(), object.GetName())
		}
	}
	waitInForce(t)
	return file
}

// waitNamespacesGone returns when there are none of the namespaces among objects: those of
// an earlier run of the test may still be on their way out, and take nothing in.
func waitNamespacesGone(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() != "Namespace" {
			continue
		}
		eventually(t, "namespace "+object.GetName()+" is gone", func(ctx context.Context) error {
			_, err := admin(t).CoreV1().Namespaces().Get(ctx, object.GetName(), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(errStill, err)
		})
	}
}

// dedicatedTaint is what the nodes of the story are kept by.
const dedicatedTaint = "dedicated"

func TestTheStoryOfDedicatedNodes(t *testing.T) {
	namespaceWith(t, "banana", map[string]string{"dedicated": "banana"})
	namespaces(t, "apple")
	node(t, "banana-existing", map[string]string{"pool": "banana"})
	sample(t, "dedicated-nodes.yaml")
	alice, barbara := tenant(t, "alice"), tenant(t, "barbara")

	t.Run("the status shows the policies that the guard stands for", func(t *testing.T) {
		found, err := admin(t).resource(t, ofTollgate("PlacementPolicy"), "").Get(t.Context(), "dedicated-banana", metav1.GetOptions{})
		require.NoError(t, err)
		status := string(encode(t, found.Object["status"].(map[string]any)["guard"]))
		for _, part := range []string{
			`"tolerationPolicy":{"grants":[{"namespaces":["banana"]}]`, `"taints":[{"key":"dedicated","target":"Node","values":["banana"]}]`,
			`"register":[{"nodeSelector":{"matchLabels":{"pool":"banana"}},"reconcile":true,"taints":[{"effect":"NoSchedule","key":"dedicated","value":"banana"}]}]`,
			`"name":"platform"`,
		} {
			require.Contains(t, status, part)
		}
	})
	t.Run("a node that was there before gets its taint", func(t *testing.T) { waitTaint(t, "banana-existing", "banana") })
	t.Run("a node that registers is born with it", func(t *testing.T) {
		// It brings a taint that keeps the pods of banana off: the scheduler may not have heard
		// yet that it is gone when they come.
		createNode(t, kubelet(t, "banana-new"), "banana-new", map[string]string{"pool": "banana"}, noSchedule("new.example.com/x", ""))
		require.NotNil(t, taintOf(nodeNow(t, "banana-new"), dedicatedTaint, corev1.TaintEffectNoSchedule))
	})
	t.Run("pods of banana land on its nodes without a word in their specs", func(t *testing.T) {
		for i := range 4 {
			name := fmt.Sprintf("pod-%d", i)
			barbara.createPod(t, "banana", podNamed(name))
			require.Equal(t, "banana-existing", waitRuns(t, "banana", name))
		}
		_, err := barbara.AppsV1().Deployments("banana").Create(t.Context(), deploymentOf("deployment"), metav1.CreateOptions{})
		require.NoError(t, err)
		waitReplicas(t, "banana", "deployment", 2)
		requireAllOn(t, "banana", "banana-existing")
	})
	t.Run("pods of others land elsewhere, or nowhere", func(t *testing.T) {
		alice.createPod(t, "apple", podNamed("anywhere"))
		require.NotEqual(t, "banana-existing", waitRuns(t, "apple", "anywhere"))
		steered := podNamed("steered")
		steered.Spec.NodeSelector = map[string]string{"pool": "banana"}
		alice.createPod(t, "apple", steered)
		waitUnschedulable(t, "apple", "steered", "untolerated taint")
	})
	t.Run("an outsider gets past by no way", func(t *testing.T) { outsiders(t, alice) })
	t.Run("who labels a namespace gets nothing by it", func(t *testing.T) {
		_, err := alice.CoreV1().Namespaces().Patch(t.Context(), "apple", types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"dedicated":"banana","kubernetes.io/metadata.name":"banana"}}}`), metav1.PatchOptions{DryRun: dryRun})
		if err == nil { // the API server has put the name of the namespace back
			requireRefused(t, alice.admit(t, "apple", podWith(equal(dedicatedTaint, "banana"))), policy.TolerationNotGranted)
		}
	})
	t.Run("nobody takes the taint off, the platform team would have to change the label first", func(t *testing.T) {
		for _, who := range []*person{alice, tenant(t, "paul", "platform")} {
			out, err := who.kubectl(t, "taint", "node", "banana-existing", "dedicated-")
			require.Error(t, err)
			require.Contains(t, out, "PlacementPolicy/dedicated-banana")
		}
		out, err := tenant(t, "paul", "platform").kubectl(t, "label", "node", "banana-existing", "pool-", "--dry-run=server")
		require.NoError(t, err, out)
	})
	t.Run("pods that contradict the policy are refused with both values", func(t *testing.T) {
		pod := podWith()
		pod.Spec.NodeSelector = map[string]string{"pool": "apple"}
		requireRefused(t, barbara.admit(t, "banana", pod), policy.PlacementContradicted, "PlacementPolicy/dedicated-banana", "apple", "banana")
	})
}

// outsiders tries every way past the taint that there is.
func outsiders(t *testing.T, alice *person) {
	t.Helper()
	tolerates := equal(dedicatedTaint, "banana")
	ways := map[string]struct {
		try    func() error
		reason policy.Reason
	}{
		"by toleration":                       {func() error { return alice.admit(t, "apple", podWith(tolerates)) }, policy.TolerationNotGranted},
		"by a toleration of every value":      {func() error { return alice.admit(t, "apple", podWith(exists(dedicatedTaint, ""))) }, policy.TolerationNotGranted},
		"by a wildcard":                       {func() error { return alice.admit(t, "apple", podWith(exists("", ""))) }, policy.TolerationNotGranted},
		"by a wildcard for NoExecute":         {func() error { return alice.admit(t, "apple", podWith(exists("", corev1.TaintEffectNoExecute))) }, policy.TolerationNotGranted},
		"by nodeName":                         {func() error { return alice.admit(t, "apple", onNode(podWith(), "banana-existing")) }, policy.TaintNotTolerated},
		"by nodeName and a toleration":        {func() error { return alice.admit(t, "apple", onNode(podWith(tolerates), "banana-existing")) }, policy.TolerationNotGranted},
		"by a binding":                        {bindsAs(t, alice, alice.bind, "outsider-bound"), policy.TaintNotTolerated},
		"by a binding of old":                 {bindsAs(t, alice, alice.bindAsOfOld, "outsider-bound-of-old"), policy.TaintNotTolerated},
		"by a template":                       {deploys(t, alice, deploymentOf("outsider", tolerates)), policy.TolerationNotGranted},
		"by an update":                        {updates(t, alice, tolerates), policy.TolerationNotGranted},
		"by an owner who is not its own":      {func() error { return alice.admit(t, "apple", ownedByReplicaSet(t, "banana", tolerates)) }, policy.TolerationNotGranted},
		"by an ownerReference that is forged": {func() error { return alice.admit(t, "apple", ownedByReplicaSet(t, "", tolerates)) }, policy.TolerationNotGranted},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			requireRefused(t, way.try(), way.reason, "PlacementPolicy/dedicated-banana", "nodes of the pool banana are dedicated to team banana")
		})
	}
}

// bindsAs returns a function that creates a pod which no scheduler places, and binds it.
func bindsAs(t *testing.T, who *person, bind func(*testing.T, string, string, string) error, name string) func() error {
	t.Helper()
	return func() error {
		pod := podNamed(name)
		pod.Spec.SchedulerName = "none"
		who.createPod(t, "apple", pod)
		return bind(t, "apple", name, "banana-existing")
	}
}

// deploys returns a function that creates a Deployment.
func deploys(t *testing.T, who *person, deployment *appsv1.Deployment) func() error {
	t.Helper()
	return func() error {
		_, err := who.AppsV1().Deployments("apple").Create(t.Context(), deployment, metav1.CreateOptions{})
		return err
	}
}

// updates returns a function that adds a toleration to a pod that was let in without.
func updates(t *testing.T, who *person, toleration corev1.Toleration) func() error {
	t.Helper()
	return func() error {
		who.createPod(t, "apple", podNamed("outsider-updated"))
		return retry.RetryOnConflict(retry.DefaultRetry, func() error { // the scheduler and the kubelet write it, too
			pod := podNow(t, "apple", "outsider-updated")
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, toleration)
			_, err := who.CoreV1().Pods("apple").Update(t.Context(), pod, metav1.UpdateOptions{})
			return err
		})
	}
}

// ownedByReplicaSet returns a pod that says it belongs to the ReplicaSet of banana's
// Deployment, or to one that there is none of.
func ownedByReplicaSet(t *testing.T, namespace string, toleration corev1.Toleration) *corev1.Pod {
	t.Helper()
	pod := podWith(toleration)
	if namespace == "" {
		pod.OwnerReferences = ownedBy("apps/v1", "ReplicaSet", &metav1.ObjectMeta{Name: "forged", UID: "forged"})
		return pod
	}
	pod.OwnerReferences = ownedBy("apps/v1", "ReplicaSet", replicaSetOf(t, namespace, "deployment"))
	return pod
}

// requireAllOn requires that all pods of a namespace are on one node.
func requireAllOn(t *testing.T, namespace, node string) {
	t.Helper()
	list, err := admin(t).CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range list.Items {
		require.Equal(t, node, list.Items[i].Spec.NodeName, list.Items[i].Name)
	}
}

// waitTaint returns when a node is dedicated to somebody.
func waitTaint(t *testing.T, name, whose string) {
	t.Helper()
	eventually(t, "node "+name+" is dedicated", func(ctx context.Context) error {
		found, err := admin(t).CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if taint := taintOf(found, dedicatedTaint, corev1.TaintEffectNoSchedule); taint == nil || taint.Value != whose {
			return errors.New("its taints do not say so")
		}
		return nil
	})
}

func TestTheOtherHalfOfDedicatedNodesIsSharedOnes(t *testing.T) {
	namespaceWith(t, "banana", map[string]string{"dedicated": "banana"})
	namespaces(t, "cherry")
	node(t, "shared-banana", map[string]string{"pool": "banana"})
	node(t, "shared-shared", map[string]string{"pool": "shared"})
	sample(t, "dedicated-nodes.yaml")
	sample(t, "shared-nodes.yaml")
	waitTaint(t, "shared-banana", "banana")
	waitTaint(t, "shared-shared", "shared")
	toShared := func(name string) *corev1.Pod {
		pod := podNamed(name)
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "shared-shared"}
		return pod
	}
	t.Run("who has no nodes is given the toleration", func(t *testing.T) {
		tenant(t, "carla").createPod(t, "cherry", toShared("regular"))
		require.Equal(t, "shared-shared", waitRuns(t, "cherry", "regular"))
	})
	t.Run("who has stays on them", func(t *testing.T) {
		tenant(t, "barbara").createPod(t, "banana", podNamed("special"))
		require.Equal(t, "shared-banana", waitRuns(t, "banana", "special"))
		tenant(t, "barbara").createPod(t, "banana", toShared("astray"))
		waitUnschedulable(t, "banana", "astray")
		requireRefused(t, tenant(t, "barbara").admit(t, "banana", podWith(equal(dedicatedTaint, "shared"))), policy.TolerationNotGranted,
			"TolerationPolicy/dedicated-shared", "this namespace has nodes of its own")
	})
}

func TestAPodMayBelongToSeveralGroups(t *testing.T) {
	namespaceWith(t, "groups-both", map[string]string{"groups.example.com/a": "yes", "groups.example.com/b": "yes"})
	node(t, "groups-a", map[string]string{"groups.example.com/pool": "a"})
	node(t, "groups-b", map[string]string{"groups.example.com/pool": "b"})
	enforce(t, `
kind: PlacementPolicy
metadata: {name: groups-a}
spec:
  match: {namespaceSelector: {matchLabels: {groups.example.com/a: "yes"}}}
  pod: {nodeSelector: {groups.example.com/pool: a}}
---
kind: PlacementPolicy
metadata: {name: groups-b}
spec:
  match: {namespaceSelector: {matchLabels: {groups.example.com/b: "yes"}}}
  pod: {nodeSelector: {groups.example.com/pool: b}}
`)
	alice := tenant(t, "alice")
	pod := alice.createPod(t, "groups-both", podNamed("either"))
	require.NotNil(t, pod.Spec.Affinity)
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	require.Equal(t, []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: "groups.example.com/pool", Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}},
	}}}, terms)
	require.Contains(t, []string{"groups-a", "groups-b"}, waitRuns(t, "groups-both", "either"))
	narrower := podNamed("narrower")
	narrower.Spec.NodeSelector = map[string]string{"groups.example.com/pool": "b"}
	alice.createPod(t, "groups-both", narrower)
	require.Equal(t, "groups-b", waitRuns(t, "groups-both", "narrower"))
	contrary := podWith()
	contrary.Spec.NodeSelector = map[string]string{"groups.example.com/pool": "c"}
	requireRefused(t, alice.admit(t, "groups-both", contrary), policy.PlacementContradicted, "groups.example.com/pool", "c", "a")
}
