package taint

import (
	"fmt"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// exportedFrom is the annotation that says which policy an exported object is of.
const exportedFrom = "tollgate.dev/exported-from"

// RegistrationPolicy returns what spec.register of a policy asks for when a node is
// created as objects that the API server evaluates itself, so that it holds while
// Tollgate is away: for each entry a MutatingAdmissionPolicy and its binding. It does
// what Tollgate's own webhook does: a taint that is there as it should be stays, one
// of the same key and effect with another value is replaced, and all others are left.
//
// That the taints are kept on nodes that exist, and who may remove them, is not for
// such a policy to say.
func RegistrationPolicy(p *v1alpha1.TaintPolicy) ([]runtime.Object, error) {
	if errs := ValidatePolicy(p); len(errs) > 0 {
		return nil, fmt.Errorf("read %s: %w", policyRef(p.Name), errs.ToAggregate())
	}
	objects := make([]runtime.Object, 0, 2*len(p.Spec.Register))
	for i := range p.Spec.Register {
		meta := metav1.ObjectMeta{
			Name:        "tollgate-register-" + p.Name + "-" + strconv.Itoa(i),
			Annotations: map[string]string{exportedFrom: policyRef(p.Name)},
		}
		objects = append(objects, mutatingPolicy(meta, &p.Spec.Register[i]), mutatingBinding(meta))
	}
	return objects, nil
}

func mutatingPolicy(meta metav1.ObjectMeta, in *v1alpha1.TaintRegistration) *admissionregistrationv1.MutatingAdmissionPolicy {
	return &admissionregistrationv1.MutatingAdmissionPolicy{
		TypeMeta: metav1.TypeMeta{
			APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicy",
		},
		ObjectMeta: *meta.DeepCopy(),
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			// An expression that cannot fail has nothing to ignore, and a node without its
			// taints is what the policy is there against.
			FailurePolicy:      new(admissionregistrationv1.Fail),
			ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				MatchPolicy:    new(admissionregistrationv1.Equivalent),
				ObjectSelector: in.NodeSelector.DeepCopy(),
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
						Rule: admissionregistrationv1.Rule{
							APIGroups: []string{corev1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"nodes"},
							Scope: new(admissionregistrationv1.ClusterScope),
						},
					},
				}},
			},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: patchExpression(in.Taints)},
			}},
		},
	}
}

func mutatingBinding(meta metav1.ObjectMeta) *admissionregistrationv1.MutatingAdmissionPolicyBinding {
	return &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		TypeMeta: metav1.TypeMeta{
			APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicyBinding",
		},
		ObjectMeta: *meta.DeepCopy(),
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name},
	}
}

// patchExpression returns the CEL expression of the patch that gives a node taints. It
// writes the whole list: those that are kept, and then those that are missing. The
// keys and values are those of labels, so that quoting them is nothing to think about.
func patchExpression(taints []v1alpha1.RegisteredTaint) string {
	var others, missing []string
	for _, t := range taints {
		place := fmt.Sprintf("t.key == %q && t.effect == %q", t.Key, t.Effect)
		taint := fmt.Sprintf(`{"key": %q, "effect": %q}`, t.Key, t.Effect)
		value := "!has(t.value) || t.value == \"\""
		if t.Value != "" {
			taint = fmt.Sprintf(`{"key": %q, "value": %q, "effect": %q}`, t.Key, t.Value, t.Effect)
			value = fmt.Sprintf("has(t.value) && t.value == %q", t.Value)
		}
		others = append(others, fmt.Sprintf("!(%s && !(%s))", place, value))
		missing = append(missing, fmt.Sprintf("(object.spec.?taints.orValue([]).exists(t, %s && (%s)) ? [] : [%s])", place, value, taint))
	}
	return "[JSONPatch{op: \"add\", path: \"/spec/taints\", value:\n" +
		"  object.spec.?taints.orValue([]).filter(t, " + strings.Join(others, " &&\n    ") + ")\n" +
		"  + " + strings.Join(missing, "\n  + ") + "\n}]"
}
