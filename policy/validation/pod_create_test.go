package validation_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

func TestValidateCreate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want []found
	}{
		"SD-01 a pod without gates": {spec: corev1.PodSpec{NodeName: "node-1"}},
		"SD-01 a pod with gates":    {spec: corev1.PodSpec{SchedulingGates: gates("a", "example.com/b")}},
		"SD-01 a node while gates hold": {
			spec: corev1.PodSpec{NodeName: "node-1", SchedulingGates: gates("a")},
			want: []found{{field.ErrorTypeForbidden, "spec.nodeName"}},
		},
		"SD-01 a gate twice": {
			spec: corev1.PodSpec{SchedulingGates: gates("a", "b", "a")},
			want: []found{{field.ErrorTypeDuplicate, "spec.schedulingGates[2]"}},
		},
		"SD-01 a gate without a qualified name": {
			spec: corev1.PodSpec{SchedulingGates: gates("a", "x/y/z")},
			want: []found{{field.ErrorTypeInvalid, "spec.schedulingGates[1]"}},
		},
		"SD-13 a value that no label has": {
			spec: requires(term(in("zone", "-"))),
			want: []found{{field.ErrorTypeInvalid, required + "[0].matchExpressions[0].values[0]"}},
		},
		"SD-13 a node selector that no label matches": {
			spec: corev1.PodSpec{NodeSelector: map[string]string{"zone": "-"}},
			want: []found{{field.ErrorTypeInvalid, "spec.nodeSelector"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireErrors(t, validation.ValidatePodCreate(&tc.spec), tc.want...)
		})
	}
}
