package cel

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const podJSON = `{
	"apiVersion": "v1", "kind": "Pod",
	"metadata": {"name": "web-0", "namespace": "shop", "labels": {"maintenance": "true", "app": "web"}},
	"spec": {
		"terminationGracePeriodSeconds": 30,
		"containers": [{"name": "a", "image": "registry.example/web:1", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
		"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
	}
}`

// review returns what the API server sends when user creates the pod.
func review(user string) *Review {
	resource := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	kind := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	return &Review{
		Request: &admissionv1.AdmissionRequest{
			UID: "0f1e", Name: "web-0", Namespace: "shop", Operation: admissionv1.Create, DryRun: new(true),
			Kind: kind, RequestKind: &kind, Resource: resource, RequestResource: &resource,
			UserInfo: authenticationv1.UserInfo{
				Username: user, UID: "7", Groups: []string{"team-a", "system:authenticated"},
				Extra: map[string]authenticationv1.ExtraValue{"example.com/ticket": {"T-1"}},
			},
			Object:  runtime.RawExtension{Raw: []byte(podJSON)},
			Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kubectl"}`)},
		},
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}},
		Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionNoOpinion, "nobody said so", nil
		}),
	}
}

// judged returns a toleration of the pod.
func judged(toleration corev1.Toleration) *Judged {
	return &Judged{Toleration: &toleration, Pod: json.RawMessage(podJSON)}
}

func mustCompile(tb testing.TB, place Place, text string) *Program {
	tb.Helper()
	program, err := Compile(place, text, Bool)
	require.NoError(tb, err)
	return program
}
