package taint

import (
	"fmt"
	"slices"
	"time"

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

// The limits of the schema. They hold for stored objects that it did not validate, too.
const (
	maxSetters       = 64
	maxRegistrations = 64
	maxRegistered    = 16
	minTTL           = time.Minute
	minWindow        = time.Second
	maxWindow        = 24 * time.Hour
)

// ValidatePolicy returns the faults of a policy: those that its schema cannot express, and
// those that a stored object may have in spite of the schema. A policy without faults is
// fully in force.
func ValidatePolicy(p *v1alpha1.TaintPolicy) field.ErrorList {
	errs := validateRest(p)
	for i := range p.Spec.Setters {
		in, path := &p.Spec.Setters[i], settersPath.Index(i)
		errs = append(errs, validateSetter(in, path)...)
		if in.Expression != "" {
			errs = append(errs, cel.Validate(cel.OfTaint, in.Expression, cel.Bool, path.Child("expression"))...)
		}
	}
	return errs
}

var settersPath = field.NewPath("spec", "setters")

// validateRest returns the faults outside of the setters.
func validateRest(p *v1alpha1.TaintPolicy) field.ErrorList {
	spec := field.NewPath("spec")
	ttl := ptr.Deref(p.Spec.TTL, metav1.Duration{Duration: minTTL}).Duration
	return slices.Concat(
		selector.ValidateAll(p.Spec.Taints, spec.Child("taints"), selector.Taints),
		policy.Check(len(p.Spec.Setters) <= maxSetters, field.TooMany(settersPath, len(p.Spec.Setters), maxSetters)),
		cel.ValidateConditions(p.Spec.MatchConditions, spec.Child("matchConditions")),
		policy.ValidateEach(p.Spec.Register, maxRegistrations, spec.Child("register"), ValidateRegistration),
		validateLimits(&p.Spec, spec.Child("limits")),
		policy.Check(ttl >= minTTL, field.Invalid(spec.Child("ttl"), ttl.String(), "must be at least "+minTTL.String())),
		policy.ValidateActions(p.Spec.ValidationActions, spec.Child("validationActions")),
		policy.ValidateMessage(p.Spec.Message, spec.Child("message")))
}

// validateSetter returns the faults of a setter outside of its expression.
func validateSetter(in *v1alpha1.TaintSetter, path *field.Path) field.ErrorList {
	operations := []v1alpha1.TaintOperation{v1alpha1.TaintAdd, v1alpha1.TaintChange, v1alpha1.TaintRemove}
	return slices.Concat(
		policy.Check(len(in.Subjects) > 0 || in.RBAC || in.Expression != "", field.Required(path, "a setter names who it is for: set subjects, rbac: true or expression")),
		policy.ValidateSubjects(in.Subjects, path.Child("subjects")),
		selector.ValidateItems(in.Operations, len(operations), path.Child("operations"), func(operation v1alpha1.TaintOperation, path *field.Path) field.ErrorList {
			return policy.ValidateEnum(operation, path, operations)
		}))
}

// ValidateRegistration returns what is wrong with a registration.
func ValidateRegistration(in *v1alpha1.TaintRegistration, path *field.Path) field.ErrorList {
	nodes, taints := path.Child("nodeSelector"), path.Child("taints")
	errs := slices.Concat(
		selector.ValidateLabels(&in.NodeSelector, nodes),
		policy.Check(!selector.SelectsAll(&in.NodeSelector), field.Required(nodes, "an empty selector would select every node: name at least one label")),
		policy.Check(len(in.Taints) > 0, field.Required(taints, "name at least one taint")),
		policy.ValidateEach(in.Taints, maxRegistered, taints, validateRegistered))
	seen := sets.New[kind]()
	for i, t := range in.Taints {
		of := kind{t.Key, t.Effect}
		if seen.Has(of) {
			errs = append(errs, field.Duplicate(taints.Index(i), t.Key+":"+string(t.Effect)))
		}
		seen.Insert(of)
	}
	return errs
}

func validateRegistered(t *v1alpha1.RegisteredTaint, path *field.Path) field.ErrorList {
	key := path.Child("key")
	errs := metav1validation.ValidateLabelName(t.Key, key)
	if t.Key == "" {
		errs = field.ErrorList{field.Required(key, "a taint needs a key")}
	} else if selector.System(t.Key) {
		errs = field.ErrorList{field.Invalid(key, t.Key, "is for Kubernetes' own controllers to set and to remove")}
	}
	for _, problem := range validation.IsValidLabelValue(t.Value) {
		errs = append(errs, field.Invalid(path.Child("value"), t.Value, problem))
	}
	return append(errs, policy.ValidateEnum(t.Effect, path.Child("effect"),
		[]corev1.TaintEffect{corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule})...)
}

// validateLimits also refuses limits on DeviceTaintRules in a policy that governs no taints of
// devices, where they would have no effect.
func validateLimits(spec *v1alpha1.TaintPolicySpec, path *field.Path) field.ErrorList {
	in := spec.Limits
	if in == nil {
		return nil
	}
	onDevices := slices.ContainsFunc(spec.Taints, func(sel v1alpha1.TaintSelector) bool { return sel.Target == v1alpha1.TaintTargetDevice })
	const why = "is about DeviceTaintRules, and the policy selects no taints with target Device"
	pods, percent := ptr.Deref(in.MaxAffectedPods, 0), ptr.Deref(in.MaxAffectedPercent, 0)
	skew, window := ptr.Deref(in.MaxTimeAddedSkew, metav1.Duration{}).Duration, in.Window.Duration
	return slices.Concat(
		policy.Check(*in != v1alpha1.TaintLimits{Window: in.Window}, field.Required(path, "limits without a limit: set at least one")),
		policy.Check(pods >= 0, field.Invalid(path.Child("maxAffectedPods"), pods, "must not be negative")),
		policy.Check(percent >= 0 && percent <= 100, field.Invalid(path.Child("maxAffectedPercent"), percent, "must be from 0 to 100")),
		policy.Check(skew >= 0, field.Invalid(path.Child("maxTimeAddedSkew"), skew.String(), "must not be negative")),
		policy.Check(window == 0 || window >= minWindow && window <= maxWindow,
			field.Invalid(path.Child("window"), window.String(), "must be from "+minWindow.String()+" to "+maxWindow.String())),
		policy.Check(onDevices || !in.RequireSelector, field.Forbidden(path.Child("requireSelector"), why)),
		policy.Check(onDevices || !in.RequirePreview, field.Forbidden(path.Child("requirePreview"), why)))
}

// Warnings says what of a policy is legal and probably not meant.
func Warnings(p *v1alpha1.TaintPolicy) []string {
	var warnings []string
	if len(p.Spec.Setters) == 0 {
		warnings = append(warnings, "spec.setters: there are none, so nobody may set, change or remove the taints of this policy, "+
			"except Kubernetes' controllers their own and drivers those of their devices")
	}
	c := compiled{taints: selector.CompileAll(p.Spec.Taints)}
	for i := range p.Spec.Register {
		if p.Spec.Register[i].Reconcile {
			continue // then nobody can remove the taint, whether it is governed or not
		}
		for j, t := range p.Spec.Register[i].Taints {
			if taint := (Taint{Target: v1alpha1.TaintTargetNode, Key: t.Key, Value: t.Value, Effect: t.Effect}); !c.governs(taint) {
				warnings = append(warnings, fmt.Sprintf("spec.register[%d].taints[%d]: %s is not among spec.taints: whoever may write nodes can remove it again", i, j, taint))
			}
		}
	}
	return warnings
}
