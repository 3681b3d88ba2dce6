package toleration

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// maxGrants is a limit of the schema. It holds for stored objects that it did not validate, too.
const maxGrants = 64

// ValidatePolicy returns the faults of a policy: those that its schema cannot express, and
// those that a stored object may have in spite of the schema. A policy without faults is
// fully in force.
func ValidatePolicy(p *v1alpha1.TolerationPolicy) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateRest(p, spec)
	if text := p.Spec.MessageExpression; text != "" {
		errs = append(errs, cel.Validate(cel.OfToleration, text, cel.String, spec.Child("messageExpression"))...)
	}
	grants := policy.ValidateEach(p.Spec.Grants, len(p.Spec.Grants), spec.Child("grants"), func(g *v1alpha1.TolerationGrant, path *field.Path) field.ErrorList {
		errs := validateGrant(g, path)
		if g.Expression != "" {
			errs = append(errs, cel.Validate(cel.OfToleration, g.Expression, cel.Bool, path.Child("expression"))...)
		}
		return errs
	})
	return append(errs, grants...)
}

// validateRest returns the faults of a policy outside of its grants and the expression of its
// message.
func validateRest(p *v1alpha1.TolerationPolicy, spec *field.Path) field.ErrorList {
	return slices.Concat(
		selector.ValidateAll(p.Spec.Taints, spec.Child("taints"), selector.Tolerations),
		policy.Check(len(p.Spec.Grants) <= maxGrants, field.TooMany(spec.Child("grants"), len(p.Spec.Grants), maxGrants)),
		cel.ValidateConditions(p.Spec.MatchConditions, spec.Child("matchConditions")),
		policy.ValidateActions(p.Spec.ValidationActions, spec.Child("validationActions")),
		policy.ValidateMessage(p.Spec.Message, spec.Child("message")))
}

// validateGrant returns the faults of a grant outside of its expression. A grant with a fault
// grants nothing, so a fault that is not found here would grant too much.
func validateGrant(g *v1alpha1.TolerationGrant, path *field.Path) field.ErrorList {
	seconds := ptr.Deref(g.MaxTolerationSeconds, 0)
	return slices.Concat(
		policy.Check(len(g.Namespaces)+len(g.Subjects) > 0 || g.NamespaceSelector != nil || g.RBAC || g.Expression != "",
			field.Required(path, "a grant names who it is for: set namespaces, namespaceSelector, subjects, rbac or expression")),
		selector.ValidateNamespaces(g.Namespaces, path.Child("namespaces"), `a namespace, a prefix and "*", or "*": `, ""),
		validateLabelSelector(g.NamespaceSelector, path.Child("namespaceSelector"), `an empty selector selects every namespace; name a label, or use namespaces: ["*"]`),
		validateLabelSelector(g.ObjectSelector, path.Child("objectSelector"), "an empty selector selects every object; name a label, or leave it out"),
		policy.ValidateSubjects(g.Subjects, path.Child("subjects")),
		policy.Check(seconds >= 0, field.Invalid(path.Child("maxTolerationSeconds"), seconds, "must not be negative")))
}

// validateLabelSelector returns what is wrong with a selector; empty says why it must
// not be empty.
func validateLabelSelector(sel *metav1.LabelSelector, path *field.Path, empty string) field.ErrorList {
	if sel == nil {
		return nil
	}
	if selector.SelectsAll(sel) {
		return field.ErrorList{field.Required(path, empty)}
	}
	return selector.ValidateLabels(sel, path)
}

// ValidateTolerations returns what is wrong with the tolerations of a pod by the
// rules of Kubernetes (AV-23 to AV-25 and, with those it had before, AV-27 and
// AV-28), at the paths and with the types that the API server uses. It knows no
// limit on their number (AV-29).
//
// An operator or an effect that this version does not know is left to the API
// server, which may be newer, and so is whether Lt and Gt are enabled: that is a
// feature gate of the API server. What is wrong with the rest of such a
// toleration is still found.
func ValidateTolerations(current, old []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !keepsAll(current, old) {
		errs = append(errs, field.Forbidden(path, "tolerations that a pod has stay as they are: only tolerationSeconds may change, and others may be added"))
	}
	return append(errs, policy.ValidateEach(current, len(current), path, ValidateToleration)...)
}

// ValidateToleration returns what is wrong with one toleration of a pod.
func ValidateToleration(t *corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
	}
	read := selector.OfPod(t)
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute && (t.Effect == "" || !read.AnyEffect) {
		errs = append(errs, field.Invalid(path.Child("effect"), t.Effect, "tolerationSeconds needs effect NoExecute"))
	}
	if t.Key == "" && slices.Contains([]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpLt, corev1.TolerationOpGt}, read.Operator) {
		errs = append(errs, field.Invalid(path.Child("operator"), t.Operator, "without a key the operator must be Exists, which tolerates every taint"))
	}
	switch read.Operator {
	case corev1.TolerationOpEqual:
		if reasons := validation.IsValidLabelValue(t.Value); len(reasons) > 0 {
			errs = append(errs, field.Invalid(path.Child("operator"), t.Value, strings.Join(reasons, "; ")))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(path.Child("operator"), t.Value, "operator Exists takes no value"))
		}
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		if !read.Numeric {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be a whole number within 64 bits, without leading zeros, plus sign or spaces"))
		}
	default:
	}
	return errs
}

// keepsAll reports whether every old toleration is still there, with any seconds. Only
// presence counts (AV-28): the order may change, and two that differ in seconds alone may
// become one. Fields are compared as written, as the API server does, so an empty operator
// is not Equal here.
func keepsAll(current, old []corev1.Toleration) bool {
	if len(old) == 0 {
		return true
	}
	kept := sets.New[corev1.Toleration]()
	for i := range current {
		kept.Insert(withoutSeconds(current[i]))
	}
	return !slices.ContainsFunc(old, func(t corev1.Toleration) bool { return !kept.Has(withoutSeconds(t)) })
}

func withoutSeconds(t corev1.Toleration) corev1.Toleration {
	t.TolerationSeconds = nil
	return t
}

// Warnings returns what the author of a valid policy may not expect of it, in the
// order of its grants.
func Warnings(p *v1alpha1.TolerationPolicy) []string {
	var warnings []string
	for i := range p.Spec.Grants {
		var what string
		switch g := &p.Spec.Grants[i]; {
		case g.ObjectSelector != nil && readsObject(g.Expression):
			what = "objectSelector and expression look"
		case g.ObjectSelector != nil:
			what = "objectSelector looks"
		case readsObject(g.Expression):
			what = "expression looks"
		default:
			continue
		}
		warnings = append(warnings, fmt.Sprintf(
			"spec.grants[%d]: %s at the object as it is when a toleration is added; it may be changed afterwards and keeps the toleration", i, what))
	}
	return warnings
}

// readsObject reports whether an expression looks at the object. One that does not
// compile grants nothing.
func readsObject(text string) bool {
	if text == "" {
		return false
	}
	program, err := cel.Compile(cel.OfToleration, text, cel.Bool)
	return err == nil && program.Uses().Object
}
