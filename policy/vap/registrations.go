package vap

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/taint"
)

// Registrations exports the registrations of a TaintPolicy, for the creation of nodes, as
// objects that the API server evaluates itself, so that they hold while Tollgate is away:
// for each a MutatingAdmissionPolicy and its binding. They do what the webhook of Tollgate
// does: a registered taint that is there stays, one of the same key and effect with another
// value is replaced, and all others stay.
//
// The objects neither keep the taints on existing nodes nor say who may remove them.
func Registrations(p *v1alpha1.TaintPolicy) ([]runtime.Object, error) {
	ref := policy.Ref("TaintPolicy", p.Name)
	if errs := taint.ValidatePolicy(p); len(errs) > 0 {
		return nil, fmt.Errorf("read %s: %w", ref, errs.ToAggregate())
	}
	var objects []runtime.Object
	for i, r := range p.Spec.Register {
		meta := metav1.ObjectMeta{
			Name:        fmt.Sprintf("tollgate-register-%s-%d", objectName(p.Name), i),
			Annotations: map[string]string{ExportedFrom: ref},
		}
		spec := admissionregistrationv1.MutatingAdmissionPolicySpec{
			// The expression cannot fail. A node without its taints is not let in.
			FailurePolicy:      new(admissionregistrationv1.Fail),
			ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				MatchPolicy: new(admissionregistrationv1.Equivalent), ObjectSelector: r.NodeSelector.DeepCopy(),
				ResourceRules: []resourceRule{rule(corev1.GroupName, "v1", clusterWide, created, "nodes")},
			},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: patchExpression(r.Taints)},
			}},
		}
		objects = append(objects,
			&admissionregistrationv1.MutatingAdmissionPolicy{TypeMeta: typeMeta("MutatingAdmissionPolicy"), ObjectMeta: *meta.DeepCopy(), Spec: spec},
			&admissionregistrationv1.MutatingAdmissionPolicyBinding{
				TypeMeta: typeMeta("MutatingAdmissionPolicyBinding"), ObjectMeta: meta,
				Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name},
			})
	}
	return objects, nil
}

// patchExpression returns the CEL expression of the patch that gives a node taints. It
// writes the whole list: the taints that stay, then those that are missing. Keys and values
// are those of labels, so Go quotes them as CEL does.
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
