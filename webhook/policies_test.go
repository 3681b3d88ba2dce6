package webhook

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/tolerations"
)

// guarding returns a policy that grants the taints with this key to nobody.
func guarding(t *testing.T, key string) *tolerations.Set {
	t.Helper()
	return tolerations.Compile([]v1alpha1.TolerationPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Spec:       v1alpha1.TolerationPolicySpec{Taints: []v1alpha1.TaintSelector{{Key: key}}},
	}})
}

func TestD03APolicyThatIsNotValidOrNotEvaluatedIsRefused(t *testing.T) {
	valid := `{"metadata":{"name":"p"},"spec":{"taints":[{"key":"dedicated"}],"grants":[{"namespaces":["a"]}]}}`
	tests := map[string]struct{ policy, names string }{
		"a key that is none":        {`{"spec":{"taints":[{"key":"a b"}]}}`, "spec.taints[0].key"},
		"a device taint":            {`{"spec":{"taints":[{"key":"a","target":"Device"}]}}`, "spec.taints[0].target"},
		"subjects":                  {`{"spec":{"taints":[{"key":"a"}],"grants":[{"subjects":[{"kind":"User","name":"x"}]}]}}`, "spec.grants[0].subjects"},
		"rbac":                      {`{"spec":{"taints":[{"key":"a"}],"grants":[{"rbac":true}]}}`, "spec.grants[0].rbac"},
		"an expression":             {`{"spec":{"taints":[{"key":"a"}],"grants":[{"expression":"true"}]}}`, "spec.grants[0].expression"},
		"an object selector":        {`{"spec":{"taints":[{"key":"a"}],"grants":[{"namespaces":["b"],"objectSelector":{"matchLabels":{"a":"b"}}}]}}`, "spec.grants[0].objectSelector"},
		"a grant for nobody":        {`{"spec":{"taints":[{"key":"a"}],"grants":[{}]}}`, "spec.grants[0]"},
		"match conditions":          {`{"spec":{"taints":[{"key":"a"}],"matchConditions":[{"name":"x","expression":"true"}]}}`, "spec.matchConditions"},
		"a message expression":      {`{"spec":{"taints":[{"key":"a"}],"messageExpression":"'x'"}}`, "spec.messageExpression"},
		"an empty selector":         {`{"spec":{"taints":[{"key":"a"}],"grants":[{"namespaceSelector":{}}]}}`, "spec.grants[0].namespaceSelector"},
		"a selector with bad words": {`{"spec":{"taints":[{"key":"a"}],"grants":[{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}]}}`, "spec.grants[0].namespaceSelector"},
	}
	judge := func(t *testing.T, object string) (bool, string) {
		t.Helper()
		review := podReview(t, admissionv1.Create, object, "")
		review.Request.Resource = metav1.GroupVersionResource{Group: "tollgate.dev", Version: "v1alpha1", Resource: "tolerationpolicies"}
		response := judgePod(t, testConfig(), review)
		if response.Allowed {
			return true, ""
		}
		return false, response.Result.Message
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.True(t, json.Valid([]byte(tt.policy)))
			ok, message := judge(t, tt.policy)
			require.False(t, ok)
			require.Contains(t, message, tt.names)
		})
	}
	ok, message := judge(t, valid)
	require.True(t, ok, message)
}

func TestD03AStoredPolicyThatIsNotValidCanStillBeLabelledAndDeleted(t *testing.T) {
	const spec = `"spec":{"taints":[{"key":"a"}],"grants":[{"rbac":true}]}`
	stored := `{"metadata":{"name":"p","finalizers":["example.com/f"]},` + spec + `}`
	tests := map[string]struct {
		object string
		want   bool
	}{
		"a label is added":            {`{"metadata":{"name":"p","labels":{"a":"b"}},` + spec + `}`, true},
		"its last finalizer is taken": {`{"metadata":{"name":"p","deletionTimestamp":"2026-11-20T12:00:00Z"},` + spec + `}`, true},
		"its spec is changed":         {`{"metadata":{"name":"p"},"spec":{"taints":[{"key":"b"}],"grants":[{"rbac":true}]}}`, false},
		"its spec is put right":       {`{"metadata":{"name":"p"},"spec":{"taints":[{"key":"a"}]}}`, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			review := podReview(t, admissionv1.Update, tt.object, stored)
			review.Request.Resource = metav1.GroupVersionResource{Group: "tollgate.dev", Version: "v1alpha1", Resource: "tolerationpolicies"}
			require.Equal(t, tt.want, judgePod(t, testConfig(), review).Allowed)
		})
	}
}
