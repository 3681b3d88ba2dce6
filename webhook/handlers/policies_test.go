package handlers

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// guarding returns a policy that grants the taints with this key to nobody.
func guarding(t *testing.T, key string) *toleration.Set {
	t.Helper()
	return toleration.Compile([]v1alpha1.TolerationPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Spec:       v1alpha1.TolerationPolicySpec{Taints: []v1alpha1.TaintSelector{{Key: key}}},
	}})
}

// policyReview returns a review of the writing of an object of our own API.
func policyReview(t *testing.T, operation admissionv1.Operation, resource, object, old string) admissionv1.AdmissionReview {
	t.Helper()
	review := podReview(t, operation, object, old)
	review.Request.Resource = metav1.GroupVersionResource{Group: "tollgate.dev", Version: "v1alpha1", Resource: resource}
	return review
}

func TestD03APolicyThatIsNotValidIsRefused(t *testing.T) {
	const broken = `a ==`
	tests := map[string]struct {
		resource, policy, names string
	}{
		"a key that is none":        {"tolerationpolicies", `{"spec":{"taints":[{"key":"a b"}]}}`, "spec.taints[0].key"},
		"a grant for nobody":        {"tolerationpolicies", `{"spec":{"taints":[{"key":"a"}],"grants":[{}]}}`, "spec.grants[0]"},
		"an empty selector":         {"tolerationpolicies", `{"spec":{"taints":[{"key":"a"}],"grants":[{"namespaceSelector":{}}]}}`, "spec.grants[0].namespaceSelector"},
		"a selector with bad words": {"tolerationpolicies", `{"spec":{"taints":[{"key":"a"}],"grants":[{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}]}}`, "spec.grants[0].namespaceSelector"},
		"a subject without a name":  {"tolerationpolicies", `{"spec":{"taints":[{"key":"a"}],"grants":[{"subjects":[{"kind":"User"}]}]}}`, "spec.grants[0].subjects[0].name"},
		"a grant by a broken expression": {
			"tolerationpolicies", `{"spec":{"taints":[{"key":"a"}],"grants":[{"expression":"` + broken + `"}]}}`, "spec.grants[0].expression",
		},
		"a condition that is no truth value": {
			"tolerationpolicies", `{"spec":{"taints":[{"key":"a"}],"matchConditions":[{"name":"x","expression":"1"}]}}`, "spec.matchConditions[0].expression",
		},
		"a message that is no text": {"tolerationpolicies", `{"spec":{"taints":[{"key":"a"}],"messageExpression":"1"}}`, "spec.messageExpression"},
		"a toleration that is none": {
			"placementpolicies", `{"spec":{"match":{"namespaces":["a"]},"pod":{"tolerations":[{"key":"a b"}]}}}`, "spec.pod.tolerations[0].key",
		},
		"a setter by a broken expression": {
			"taintpolicies", `{"spec":{"taints":[{"key":"a"}],"setters":[{"expression":"` + broken + `"}]}}`, "spec.setters[0].expression",
		},
		"a gate that is none": {"gatepolicies", `{"spec":{"gates":["a b"]}}`, "spec.gates[0]"},
		"an eviction policy that evicts nobody": {
			"evictionpolicies", `{"spec":{"taints":[{"key":"a","effects":["NoSchedule"]}]}}`, "spec.taints[0].effects",
		},
		"an eviction policy with a window for every key": {
			"evictionpolicies", `{"spec":{"taints":[{"key":"*"}],"inject":{"seconds":60}}}`, "spec.taints[0].key",
		},
		"an eviction policy that protects everybody": {
			"evictionpolicies", `{"spec":{"taints":[{"key":"a"}],"protect":{"podSelector":{}}}}`, "spec.protect.podSelector",
		},
		"an eviction policy for pods that cannot be selected": {
			"evictionpolicies", `{"spec":{"taints":[{"key":"a"}],"podSelector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}}`, "spec.podSelector",
		},
		"an approval for nothing": {
			"evictionapprovals", `{"spec":{"taint":{"key":"a","effect":"NoExecute"},"maxPods":1,"expiresAfter":"1h"}}`, "spec.node",
		},
		"an approval for two": {
			"evictionapprovals", `{"spec":{"node":"a","deviceTaintRule":"b","taint":{"key":"a","effect":"NoExecute"},"maxPods":1,"expiresAfter":"1h"}}`, "spec.node",
		},
		"an approval for a rule and a patch": {
			"evictionapprovals", `{"spec":{"resourceSlicePatch":"a","deviceTaintRule":"b","taint":{"key":"a","effect":"NoExecute"},"maxPods":1,"expiresAfter":"1h"}}`, "spec.node",
		},
		"an approval for three": {
			"evictionapprovals", `{"spec":{"node":"a","resourceSlicePatch":"a","deviceTaintRule":"b","taint":{"key":"a","effect":"NoExecute"},"maxPods":1,"expiresAfter":"1h"}}`, "spec.node",
		},
		"an approval for a patch that cannot be": {
			"evictionapprovals", `{"spec":{"resourceSlicePatch":"A","taint":{"key":"a","effect":"NoExecute"},"maxPods":1,"expiresAfter":"1h"}}`, "spec.resourceSlicePatch",
		},
		"an approval for a node that cannot be": {
			"evictionapprovals", `{"spec":{"evictionPolicy":"a","taint":{"key":"a","effect":"NoExecute"},"maxPods":1,"expiresAfter":"1h"}}`, "spec.taint",
		},
		"an approval for a policy and a node": {
			"evictionapprovals", `{"spec":{"evictionPolicy":"a","node":"b","maxPods":1,"expiresAfter":"1h"}}`, "spec.node",
		},
		"an approval for a policy of no name": {
			"evictionapprovals", `{"spec":{"evictionPolicy":"A B","maxPods":1,"expiresAfter":"1h"}}`, "spec.evictionPolicy",
		},
		"an approval for a node of no name": {
			"evictionapprovals", `{"spec":{"node":"A B","taint":{"key":"a","effect":"NoExecute"},"maxPods":1,"expiresAfter":"1h"}}`, "spec.node",
		},
		"an approval for a rule that cannot be": {
			"evictionapprovals", `{"spec":{"deviceTaintRule":"A","taint":{"key":"a","effect":"NoExecute"},"maxPods":1,"expiresAfter":"1h"}}`, "spec.deviceTaintRule",
		},
		"an approval of what evicts nobody": {
			"evictionapprovals", `{"spec":{"node":"a","taint":{"key":"a","effect":"NoSchedule"},"maxPods":1,"expiresAfter":"1h"}}`, "spec.taint.effect",
		},
		"an approval of every key": {
			"evictionapprovals", `{"spec":{"node":"a","taint":{"key":"*","effect":"NoExecute"},"maxPods":1,"expiresAfter":"1h"}}`, "spec.taint.key",
		},
		"an approval for no pod": {
			"evictionapprovals", `{"spec":{"node":"a","taint":{"key":"a","effect":"NoExecute"},"expiresAfter":"1h"}}`, "spec.maxPods",
		},
		"a patch by a broken expression": {
			"resourceslicepatches", `{"spec":{"devices":{"filter":{"selectors":[{"cel":{"expression":"` + broken + `"}}]}}}}`,
			"spec.devices.filter.selectors[0].cel.expression",
		},
		"a patch that takes a capacity away": {
			"resourceslicepatches", `{"spec":{"devices":{"capacity":{"d.example.com/memory":null}}}}`, "spec.devices.capacity[d.example.com/memory].value",
		},
		"a patch of an attribute without a domain": {
			"resourceslicepatches", `{"spec":{"devices":{"attributes":{"rack":{"int":1}}}}}`, "spec.devices.attributes[rack]",
		},
		"an approval that lasts too long": {
			"evictionapprovals", `{"spec":{"node":"a","taint":{"key":"a","effect":"NoExecute"},"maxPods":1,"expiresAfter":"169h"}}`, "spec.expiresAfter",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.True(t, json.Valid([]byte(tt.policy)))
			response := judgePod(t, testConfig(), policyReview(t, admissionv1.Create, tt.resource, tt.policy, ""))
			require.False(t, response.Allowed)
			require.Contains(t, response.Result.Message, tt.names)
			require.EqualValues(t, policy.Invalid, response.Result.Details.Causes[0].Type)
		})
	}
}

func TestAPolicyThatIsValidIsAllowed(t *testing.T) {
	for resource, object := range map[string]string{
		"tolerationpolicies":   `{"metadata":{"name":"p"},"spec":{"taints":[{"key":"dedicated"}],"grants":[{"namespaces":["a"]},{"expression":"request.userInfo.username == 'alice'"}]}}`,
		"placementpolicies":    `{"metadata":{"name":"p"},"spec":{"match":{"namespaces":["a"]},"pod":{"tolerations":[{"key":"a","operator":"Exists"}]}}}`,
		"taintpolicies":        `{"metadata":{"name":"p"},"spec":{"taints":[{"key":"dedicated"}],"setters":[{"rbac":true}]}}`,
		"gatepolicies":         `{"metadata":{"name":"p"},"spec":{"gates":["example.com/*"],"owners":[{"kind":"Group","name":"g"}]}}`,
		"evictionpolicies":     `{"metadata":{"name":"p"},"spec":{"taints":[{"key":"*"},{"target":"Device","key":"*","drivers":["d.example.com"]}],"method":"Evict","deleteAfter":"1h","breaker":{"maxPods":5}}}`,
		"evictionapprovals":    `{"metadata":{"name":"p"},"spec":{"node":"n","taint":{"key":"a","effect":"NoExecute"},"maxPods":1,"expiresAfter":"1h"}}`,
		"resourceslicepatches": `{"metadata":{"name":"p"},"spec":{"devices":{"filter":{"driver":"d.example.com"},"attributes":{"a.example.com/rack":{"null":{}}}}}}`,
	} {
		t.Run(resource, func(t *testing.T) {
			response := judgePod(t, testConfig(), policyReview(t, admissionv1.Create, resource, object, ""))
			require.True(t, response.Allowed, "%v", response.Result)
			require.Empty(t, response.Warnings)
		})
	}
}

func TestAnApprovalForEachKindIsAllowed(t *testing.T) {
	for _, named := range []string{"node", "deviceTaintRule", "resourceSlicePatch"} {
		object := `{"metadata":{"name":"p"},"spec":{"` + named + `":"n","taint":{"key":"a","effect":"NoExecute"},"maxPods":1,"expiresAfter":"1h"}}`
		require.True(t, judgePod(t, testConfig(), policyReview(t, admissionv1.Create, "evictionapprovals", object, "")).Allowed, named)
	}
}

func TestATolerationPolicyWithAGrantThatIsAskedOnceIsWarnedAbout(t *testing.T) {
	object := `{"metadata":{"name":"p"},"spec":{"taints":[{"key":"dedicated"}],"grants":[{"namespaces":["a"]},{"expression":"pod.spec.priority > 1"}]}}`
	response := judgePod(t, testConfig(), policyReview(t, admissionv1.Create, "tolerationpolicies", object, ""))
	require.True(t, response.Allowed, "%v", response.Result)
	require.Len(t, response.Warnings, 1)
	require.Contains(t, response.Warnings[0], "spec.grants[1]")
}

func TestATaintPolicyThatIsProbablyNotMeantIsWarnedAbout(t *testing.T) {
	object := `{"spec":{"taints":[{"key":"a"}],"register":[{"nodeSelector":{"matchLabels":{"x":"y"}},"taints":[{"key":"b","effect":"NoSchedule"}]}]}}`
	response := judgePod(t, testConfig(), policyReview(t, admissionv1.Create, "taintpolicies", object, ""))
	require.True(t, response.Allowed)
	require.NotEmpty(t, response.Warnings)
}

func TestAPatchOfEveryDeviceIsWarnedAbout(t *testing.T) {
	object := `{"metadata":{"name":"p"},"spec":{"devices":{"taints":[{"key":"example.com/a","effect":"NoSchedule"}]}}}`
	response := judgePod(t, testConfig(), policyReview(t, admissionv1.Create, "resourceslicepatches", object, ""))
	require.True(t, response.Allowed, "%v", response.Result)
	require.Len(t, response.Warnings, 1)
	require.Contains(t, response.Warnings[0], "every device of every driver")
}

func TestD03AStoredPolicyThatIsNotValidCanStillBeLabelledAndDeleted(t *testing.T) {
	const spec = `"spec":{"taints":[{"key":"a"}],"grants":[{}]}`
	stored := `{"metadata":{"name":"p","finalizers":["example.com/f"]},` + spec + `}`
	tests := map[string]struct {
		object string
		want   bool
	}{
		"a label is added":            {`{"metadata":{"name":"p","labels":{"a":"b"}},` + spec + `}`, true},
		"its last finalizer is taken": {`{"metadata":{"name":"p","deletionTimestamp":"2026-11-20T12:00:00Z"},` + spec + `}`, true},
		"its spec is changed":         {`{"metadata":{"name":"p"},"spec":{"taints":[{"key":"b"}],"grants":[{}]}}`, false},
		"its spec is put right":       {`{"metadata":{"name":"p"},"spec":{"taints":[{"key":"a"}]}}`, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			review := policyReview(t, admissionv1.Update, "tolerationpolicies", tt.object, stored)
			require.Equal(t, tt.want, judgePod(t, testConfig(), review).Allowed)
		})
	}
}

func TestTheAnnotationThatReleasedABreakerIsRefused(t *testing.T) {
	const spec = `"spec":{"taints":[{"key":"a"}]}`
	plain, annotated := `{"metadata":{"name":"p"},`+spec+`}`, `{"metadata":{"name":"p","annotations":{"tollgate.dev/release-breaker":"1"}},`+spec+`}`
	labelled := `{"metadata":{"name":"p","labels":{"a":"b"},"annotations":{"tollgate.dev/release-breaker":"1"}},` + spec + `}`
	for name, tt := range map[string]struct {
		operation   admissionv1.Operation
		object, old string
		allowed     bool
	}{
		"a policy without it is created":    {admissionv1.Create, plain, "", true},
		"a policy with it is created":       {admissionv1.Create, annotated, "", false},
		"it is added":                       {admissionv1.Update, annotated, plain, false},
		"it is taken away":                  {admissionv1.Update, plain, annotated, true},
		"a policy that has it gets a label": {admissionv1.Update, labelled, annotated, true},
	} {
		t.Run(name, func(t *testing.T) {
			response := judgePod(t, testConfig(), policyReview(t, tt.operation, "evictionpolicies", tt.object, tt.old))
			require.Equal(t, tt.allowed, response.Allowed)
			if !tt.allowed {
				require.Contains(t, response.Result.Message, "metadata.annotations[tollgate.dev/release-breaker]")
				require.Contains(t, response.Result.Message, "create an EvictionApproval with spec.evictionPolicy: p")
			}
		})
	}
}
