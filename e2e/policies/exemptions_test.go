package policies

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/policy"
)

func TestNobodyGetsAnExemptionByWhatTheyWriteOrAreCalled(t *testing.T) {
	const key = "exemptions.example.com/x"
	namespaceWith(t, "exemptions", nil)
	namespaceWith(t, "exemptions-granted", map[string]string{"exemptions.example.com/tier": "system"})
	enforce(t, `
kind: TolerationPolicy
metadata: {name: exemptions}
spec:
  taints: [{key: exemptions.example.com/x}]
  grants:
  - namespaceSelector: {matchLabels: {exemptions.example.com/tier: system}}
    objectSelector: {matchLabels: {app: monitor}}
  - subjects: [{kind: User, name: bob}, {kind: ServiceAccount, name: operator, namespace: exemptions}]
`)
	pod := func() *corev1.Pod { return podWith(exists(key, "")) }
	annotated := func(annotations ...string) *corev1.Pod {
		p := pod()
		p.Annotations = map[string]string{}
		for _, annotation := range annotations {
			p.Annotations[annotation] = "true"
		}
		return onNode(p, controlplane.NodeName(1)) // as one that the API server takes for a mirror pod has to be
	}
	labelled := pod()
	labelled.Labels = map[string]string{"app": "monitor"}
	ownedByNobody := pod()
	ownedByNobody.OwnerReferences = ownedBy("apps/v1", "ReplicaSet", &metav1.ObjectMeta{Name: "forged", UID: "forged"})

	refused := map[string]struct {
		who       *person
		namespace string
		pod       *corev1.Pod
	}{
		"C11 the labels of a pod open nothing alone":                   {tenant(t, "alice"), "exemptions", labelled},
		"C11 a namespace that is granted needs the labels, too":        {tenant(t, "alice"), "exemptions-granted", pod()},
		"C12 annotations in Tollgate's name open nothing":              {tenant(t, "alice"), "exemptions", annotated("tollgate.dev/exempt", "tollgate.dev/injected", "tollgate.dev/placement")},
		"C14 nor does the annotation of a mirror pod":                  {tenant(t, "alice"), "exemptions", annotated(corev1.MirrorPodAnnotationKey)},
		"C18 system:masters are not exempt":                            {admin(t), "exemptions", pod()},
		"C18 nor is who is only called like a node":                    {tenant(t, "system:node:evil"), "exemptions", annotated(corev1.MirrorPodAnnotationKey)},
		"C18 nor who is only called like a controller":                 {tenant(t, "system:kube-controller-manager:evil"), "exemptions", ownedByNobody},
		"C18 nor a ServiceAccount of that name from another namespace": {serviceAccount(t, "exemptions-granted", "operator"), "exemptions", pod()},
		"C18 nor a group of the name of a user":                        {tenant(t, "alice", "bob"), "exemptions", pod()},
	}
	for name, tt := range refused {
		t.Run(name, func(t *testing.T) {
			requireRefused(t, tt.who.admit(t, tt.namespace, tt.pod), policy.TolerationNotGranted,
				"TolerationPolicy/exemptions", "spec.tolerations[0]", "key=exemptions.example.com/x", "allowed")
		})
	}
	t.Run("who is granted may", func(t *testing.T) {
		require.NoError(t, tenant(t, "alice").admit(t, "exemptions-granted", labelled))
		require.NoError(t, tenant(t, "bob").admit(t, "exemptions", pod()))
		require.NoError(t, serviceAccount(t, "exemptions", "operator").admit(t, "exemptions", pod()))
	})
	t.Run("C19 who is impersonated counts, and the audit log has both", func(t *testing.T) {
		p := pod()
		p.GenerateName, p.Name = "", "impersonated"
		tenant(t, "bob").createPod(t, "exemptions", p)
		events := audited(t, "pods", "exemptions", "impersonated")
		require.NotEmpty(t, events)
		require.Equal(t, "kubernetes-admin", events[0].User.Username)
		require.Equal(t, "bob", events[0].ImpersonatedUser.Username)
	})
}

func TestC11WhoLabelsANamespaceSoThatItIsGrantedMustBeAllowedToTolerate(t *testing.T) {
	const label = `{"metadata":{"labels":{"labels.example.com/tier":"system"}}}`
	namespaces(t, "labels-own")
	enforce(t, `
kind: TolerationPolicy
metadata: {name: labels}
spec:
  taints: [{key: labels.example.com/x}]
  grants:
  - namespaceSelector: {matchLabels: {labels.example.com/tier: system}}
`)
	patch := func(who *person, body string) error {
		_, err := who.CoreV1().Namespaces().Patch(t.Context(), "labels-own", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	t.Run("a tenant may not give it to a namespace", func(t *testing.T) {
		requireRefused(t, patch(tenant(t, "alice"), label), policy.LabelNotGranted, "TolerationPolicy/labels", "metadata.labels", "tolerate")
	})
	t.Run("nor create one that has it", func(t *testing.T) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "labels-born", Labels: map[string]string{"labels.example.com/tier": "system"}}}
		_, err := tenant(t, "alice").CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
		requireRefused(t, err, policy.LabelNotGranted, "TolerationPolicy/labels")
	})
	t.Run("C05 nor by way of its status", func(t *testing.T) {
		_, err := tenant(t, "alice").CoreV1().Namespaces().Patch(t.Context(), "labels-own", types.MergePatchType, []byte(label), metav1.PatchOptions{}, "status")
		requireRefused(t, err, policy.LabelNotGranted, "TolerationPolicy/labels")
	})
	t.Run("another label is nobody's matter", func(t *testing.T) {
		require.NoError(t, patch(tenant(t, "alice"), `{"metadata":{"labels":{"labels.example.com/other":"system"}}}`))
	})
	t.Run("C09 who may tolerate the key may, and what comes next follows the labels", func(t *testing.T) {
		allow(t, "tolerate", userNamed("carol"), "labels.example.com/x")
		carol, alice := tenant(t, "carol"), tenant(t, "alice")
		for range 5 {
			eventuallyAllowed(t, func() error { return patch(carol, label) })
			require.NoError(t, alice.admit(t, "labels-own", podWith(exists("labels.example.com/x", ""))))
			require.NoError(t, patch(alice, `{"metadata":{"labels":{"labels.example.com/tier":null}}}`), "a grant may be given up")
			requireRefused(t, alice.admit(t, "labels-own", podWith(exists("labels.example.com/x", ""))), policy.TolerationNotGranted)
		}
	})
}

// eventuallyAllowed repeats a request while it is refused: RBAC comes to the API server
// through a watch, and what Tollgate was told it may keep for some seconds.
func eventuallyAllowed(t *testing.T, request func() error) {
	t.Helper()
	becomes(t, "RBAC has come into force", func() error {
		err := request()
		if !apierrors.IsForbidden(err) {
			require.NoError(t, err)
		}
		return err
	})
}

func TestC13AMirrorPodIsRecordedAndLeftAsItIs(t *testing.T) {
	const name = "mirror-node"
	namespaces(t, "mirror")
	node(t, name, nil)
	enforce(t, `
kind: TolerationPolicy
metadata: {name: mirror}
spec:
  taints: [{key: mirror.example.com/x}]
---
kind: PlacementPolicy
metadata: {name: mirror}
spec:
  match: {namespaces: [mirror]}
  pod:
    nodeSelector: {mirror.example.com/pool: a}
    tolerations: [{key: mirror.example.com/placed, operator: Exists}]
`)
	mirror := onNode(podNamed("static-"+name, exists("mirror.example.com/x", "")), name)
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
	mirror.OwnerReferences = ownedBy("v1", "Node", nodeNow(t, name))
	mirror.OwnerReferences[0].BlockOwnerDeletion = nil

	created := kubelet(t, name).createPod(t, "mirror", mirror)
	require.Empty(t, created.Spec.NodeSelector)
	for _, toleration := range created.Spec.Tolerations {
		require.NotEqual(t, "mirror.example.com/placed", toleration.Key, "the pod runs already, and stays as it is")
	}
	require.Contains(t, auditedViolations(t, created), "TolerationPolicy/mirror: spec.tolerations[0] (key=mirror.example.com/x")
}

func TestNodesMayNotTakeOtherPodsThanMirrorPods(t *testing.T) {
	// NodeRestriction holds this; Tollgate lets mirror pods pass because it does.
	namespaces(t, "nodes-pods")
	node(t, "nodes-pods-node", nil)
	pod := onNode(podNamed("no-mirror"), "nodes-pods-node")
	_, err := kubelet(t, "nodes-pods-node").CoreV1().Pods("nodes-pods").Create(t.Context(), pod, metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.NotContains(t, err.Error(), "tollgate")
}

func TestC10ANamespaceThatIsNewIsJudgedByItsLabels(t *testing.T) {
	enforce(t, `
kind: TolerationPolicy
metadata: {name: new-namespaces}
spec:
  taints: [{key: new.example.com/x}]
  grants:
  - namespaceSelector: {matchLabels: {new.example.com/tier: system}}
`)
	// A template needs no ServiceAccount in the namespace yet, so nothing has to be
	// waited for.
	for name, labels := range map[string]map[string]string{"new-granted": {"new.example.com/tier": "system"}, "new-other": nil} {
		ctx, client := t.Context(), admin(t)
		eventually(t, "namespace is created", func(ctx context.Context) error {
			_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
			return err
		})
		t.Cleanup(func() {
			require.NoError(t, admin(t).CoreV1().Namespaces().Delete(afterwards(t), name, metav1.DeleteOptions{}))
		})
		_, err := client.AppsV1().Deployments(name).Create(ctx, deploymentOf("new", exists("new.example.com/x", "")), metav1.CreateOptions{})
		if labels == nil {
			requireRefused(t, err, policy.TolerationNotGranted, "TolerationPolicy/new-namespaces", "new-other")
			continue
		}
		require.NoError(t, err)
	}
}

// errStill is why something is waited for that only has to end.
var errStill = errors.New("not yet")
