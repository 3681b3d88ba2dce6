package registration_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/tollgate-dev/tollgate/controllers/registration"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// Every plain pod of a cluster pays for this condition in the API server. A condition that is always
// false is the floor.
func BenchmarkTheConditionOfPlainPods(b *testing.B) {
	d, err := registration.NewDeriver(registration.Settings{Namespace: "tollgate-system", Service: "tollgate", DefaultSeconds: toleration.DefaultSeconds{NotReady: 300, Unreachable: 300}})
	require.NoError(b, err)
	var ours string
	for _, w := range d.Derive(registration.Validating, registration.Tolerations, nil) {
		if w.Name == "pods.tollgate.dev" {
			ours = w.MatchConditions[0].Expression
		}
	}
	require.NotEmpty(b, ours)
	for name, text := range map[string]string{"always false": "false", "of plain pods": ours} {
		b.Run(name, func(b *testing.B) {
			all := entriesOf([]registration.Webhook{{Name: "x", MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: text}}}})
			tolerations := []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			}
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", Labels: map[string]string{"app": "a"}, Annotations: map[string]string{"a": "b"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: strings.Repeat("x", 100)}}, Tolerations: tolerations},
			}
			kind := kinds["pods"]
			a := apiserveradmission.NewAttributesRecord(pod, nil, kind, "a", "b", kind.GroupVersion().WithResource("pods"), "", apiserveradmission.Create, nil, false, &user.DefaultInfo{Name: "u"})
			b.ReportAllocs()
			for b.Loop() {
				versioned := &apiserveradmission.VersionedAttributes{Attributes: a, VersionedKind: kind, VersionedObject: apiserveradmission.NewLazyObject(pod)}
				result := all[0].matcher.Match(b.Context(), versioned, nil, nil)
				if result.Matches || result.Error != nil {
					b.Fatal(result)
				}
			}
		})
	}
}
