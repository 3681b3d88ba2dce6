package handlers

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/policy"
)

// onNode returns a pod on a node, with tolerations.
func onNode(node, tolerations string) string {
	return fmt.Sprintf(`{"metadata":{"labels":{"app":"web"}},"spec":{"nodeName":%q,"tolerations":[%s]}}`, node, tolerations)
}

// passes are ways to put a pod on a node past the scheduler: each as who, from a pod
// that already has an owner or not.
type pass struct {
	who    authenticationv1.UserInfo
	node   string
	has    string
	reason policy.Reason // empty where it is allowed
	says   []string
}

// passCases hold for spec.nodeName and for both ways to bind.
func passCases() map[string]pass {
	const banana = `{"key":"dedicated","operator":"Equal","value":"banana","effect":"NoSchedule"}`
	return map[string]pass{
		"to a node without taints":               {named("mallory"), "free", "", "", nil},
		"to a node that nobody guards":           {named("mallory"), "other", "", "", nil},
		"not tolerated":                          {named("mallory"), "banana", "", policy.TaintNotTolerated, []string{"dedicated=banana:NoSchedule"}},
		"not tolerated, by somebody granted":     {named("alice"), "banana", "", policy.TaintNotTolerated, []string{"dedicated=banana:NoSchedule"}},
		"tolerated and granted":                  {named("alice"), "banana", banana, "", nil},
		"tolerated by a wildcard and granted":    {named("alice"), "banana", `{"operator":"Exists"}`, "", nil},
		"not tolerated, and only preferred":      {named("mallory"), "preferred", "", "", nil},
		"a scheduler":                            {named("system:kube-scheduler"), "banana", "", "", nil},
		"a node that does not exist":             {named("mallory"), "future", "", policy.PassNotGranted, []string{"there is no such node", "future"}},
		"a node that does not exist, by a grant": {named("alice"), "future", "", "", nil},
		"C18 a user called like a scheduler":     {named("system:kube-scheduler2"), "banana", "", policy.TaintNotTolerated, nil},
	}
}

func passConfig(t *testing.T, objects ...client.Object) Config {
	t.Helper()
	preferred := forBanana
	preferred.Effect = corev1.TaintEffectPreferNoSchedule
	config := testConfig()
	config.Policies = dedicatedTo(t, byAlice)
	config.Live = storing(append(objects,
		nodeTainted("free"), nodeTainted("banana", forBanana), nodeTainted("preferred", preferred),
		nodeTainted("other", corev1.Taint{Key: "other", Effect: corev1.TaintEffectNoSchedule}),
	)...)
	return config
}

func TestC04TheNodeNameIsNoWayAround(t *testing.T) {
	for name, tt := range passCases() {
		t.Run(name, func(t *testing.T) {
			response := judgePod(t, passConfig(t), asked(t, "pods", "", tt.who, onNode(tt.node, tt.has), nil))
			if tt.reason == "" {
				require.True(t, response.Allowed)
				return
			}
			requireRefused(t, response, tt.reason, "spec.nodeName", append(tt.says, "TolerationPolicy/dedicated")...)
		})
	}
}

func TestC04NoTolerationIsGrantedByTheNodeItIsFor(t *testing.T) {
	response := judgePod(t, passConfig(t), asked(t, "pods", "", named("mallory"), onNode("banana", dedicated), nil))
	requireRefused(t, response, policy.TolerationNotGranted, "spec.tolerations[0]")
	requireRefused(t, response, policy.PassNotGranted, "spec.nodeName", "dedicated")
}

func TestC04BothWaysToBindAreJudged(t *testing.T) {
	for name, tt := range passCases() {
		var tolerations []corev1.Toleration
		require.NoError(t, json.Unmarshal([]byte("["+tt.has+"]"), &tolerations))
		pod := &corev1.Pod{ObjectMeta: metaOf("p", "p"), Spec: corev1.PodSpec{Tolerations: tolerations}}
		for _, way := range []struct{ resource, subresource string }{{"pods", "binding"}, {"bindings", ""}} {
			t.Run(way.resource+" "+name, func(t *testing.T) {
				binding := corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: tt.node}}
				review := asked(t, way.resource, way.subresource, tt.who, binding, nil)
				response := judgePod(t, passConfig(t, pod), review)
				if tt.reason == "" {
					require.True(t, response.Allowed)
					return
				}
				requireRefused(t, response, tt.reason, "target.name", append(tt.says, "TolerationPolicy/dedicated")...)
			})
		}
	}
}

func TestBindingsThatKubernetesRefusesAreLeftToIt(t *testing.T) {
	for name, binding := range map[string]corev1.Binding{
		"to something else": {ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Kind: "Rack", Name: "banana"}},
		"to nothing":        {ObjectMeta: metav1.ObjectMeta{Name: "p"}},
	} {
		t.Run(name, func(t *testing.T) {
			review := asked(t, "pods", "binding", named("mallory"), binding, nil)
			review.Request.Name = ""
			require.True(t, judgePod(t, passConfig(t, &corev1.Pod{ObjectMeta: metaOf("p", "p")}), review).Allowed)
		})
	}
	t.Run("the kind of the target is a node where it is not named", func(t *testing.T) {
		binding := corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Name: "banana"}}
		response := judgePod(t, passConfig(t, &corev1.Pod{ObjectMeta: metaOf("p", "p")}), asked(t, "bindings", "", named("mallory"), binding, nil))
		requireRefused(t, response, policy.TaintNotTolerated, "target.name")
	})
}

// A pod that is not there when Tollgate looks may be there when the API server does.
func TestC04APodThatDoesNotExistIsBoundToNoGuardedNode(t *testing.T) {
	tests := map[string]struct {
		who, node string
		reason    policy.Reason
	}{
		"to a guarded node":                           {"mallory", "banana", policy.TaintNotTolerated},
		"to a guarded node by who may tolerate it":    {"alice", "banana", policy.TaintNotTolerated},
		"to a node without taints":                    {"mallory", "free", ""},
		"to a node that nobody guards":                {"mallory", "other", ""},
		"to a node that does not exist":               {"mallory", "future", policy.PassNotGranted},
		"to a guarded node, which schedulers look at": {"system:kube-scheduler", "banana", ""},
	}
	for name, tt := range tests {
		for _, way := range []struct{ resource, subresource string }{{"pods", "binding"}, {"bindings", ""}} {
			t.Run(way.resource+" "+name, func(t *testing.T) {
				binding := corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Name: tt.node}}
				response := judgePod(t, passConfig(t), asked(t, way.resource, way.subresource, named(tt.who), binding, nil))
				if tt.reason == "" {
					require.True(t, response.Allowed)
					return
				}
				requireRefused(t, response, tt.reason, "target.name", "there is no such", "TolerationPolicy/dedicated")
			})
		}
	}
}

func TestOtherSchedulersAreConfigured(t *testing.T) {
	config := passConfig(t)
	config.Schedulers = []string{"system:serviceaccount:batch:scheduler"}
	pod := onNode("banana", "")
	require.True(t, judgePod(t, config, asked(t, "pods", "", named("system:serviceaccount:batch:scheduler"), pod, nil)).Allowed)
	require.False(t, judgePod(t, config, asked(t, "pods", "", named("system:kube-scheduler"), pod, nil)).Allowed, "the default is replaced")
}

func TestATemplateWithANodeNameGivesItsPodsThePass(t *testing.T) {
	config := passConfig(t, &appsv1.ReplicaSet{ObjectMeta: metaOf("web", "rs"), Spec: appsv1.ReplicaSetSpec{Template: templateWith(exampleToleration)}})
	pod := `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"rs","controller":true}]},"spec":{"nodeName":"banana","tolerations":[` + dedicated + `]}}`
	require.True(t, judgePod(t, config, asked(t, "pods", "", controllerNamed("replicaset-controller"), pod, nil)).Allowed)
	require.False(t, judgePod(t, config, asked(t, "pods", "", named("mallory"), pod, nil)).Allowed)
}

func TestC13APassOfAMirrorPodIsAudited(t *testing.T) {
	kubelet := authenticationv1.UserInfo{Username: "system:node:banana", Groups: []string{"system:nodes"}}
	mirror := `{"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{"nodeName":"banana"}}`
	response := judgePod(t, passConfig(t), asked(t, "pods", "", kubelet, mirror, nil))
	require.True(t, response.Allowed)
	require.Contains(t, response.AuditAnnotations["violations"], "TolerationPolicy/dedicated: spec.nodeName")
}
