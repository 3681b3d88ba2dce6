package taint

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
	setters := field.NewPath("spec", "setters")
	errs := validateRest(p)
	for i := range p.Spec.Setters {
		in, path := &p.Spec.Setters[i], setters.Index(i)
		errs = append(errs, validateSetter(in, path)...)
		if in.Expression != "" {
			errs = append(errs, cel.Validate(cel.OfTaint, in.Expression, cel.Bool, path.Child("expression"))...)
		}
	}
	return errs
}

// validateRest returns the faults outside of the setters.
func validateRest(p *v1alpha1.TaintPolicy) field.ErrorList {
	spec := field.NewPath("spec")
	errs := selector.ValidateAll(p.Spec.Taints, spec.Child("taints"), selector.Taints)
	if len(p.Spec.Setters) > maxSetters {
		errs = append(errs, field.TooMany(spec.Child("setters"), len(p.Spec.Setters), maxSetters))
	}
	errs = append(errs, cel.ValidateConditions(cel.OfRequest, p.Spec.MatchConditions, spec.Child("matchConditions"))...)
	errs = append(errs, validateEach(p.Spec.Register, maxRegistrations, spec.Child("register"), ValidateRegistration)...)
	if p.Spec.Limits != nil {
		errs = append(errs, validateLimits(p.Spec.Limits, spec.Child("limits"))...)
		errs = append(errs, validateRuleLimits(&p.Spec, spec.Child("limits"))...)
	}
	if ttl := p.Spec.TTL; ttl != nil && ttl.Duration < minTTL {
		errs = append(errs, field.Invalid(spec.Child("ttl"), ttl.Duration.String(), "must be at least "+minTTL.String()))
	}
	errs = append(errs, policy.ValidateActions(p.Spec.ValidationActions, spec.Child("validationActions"))...)
	return append(errs, policy.ValidateMessage(p.Spec.Message, spec.Child("message"))...)
}

func validateEach[T any](list []T, most int, path *field.Path, validate func(*T, *field.Path) field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	if len(list) > most {
		errs = append(errs, field.TooMany(path, len(list), most))
	}
	for i := range list {
		errs = append(errs, validate(&list[i], path.Index(i))...)
	}
	return errs
}

// validateSetter returns the faults of a setter outside of its expression.
func validateSetter(in *v1alpha1.TaintSetter, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(in.Subjects) == 0 && !in.RBAC && in.Expression == "" {
		errs = append(errs, field.Required(path, "a setter names who it is for: set subjects, rbac: true or expression"))
	}
	errs = append(errs, policy.ValidateSubjects(in.Subjects, path.Child("subjects"))...)
	operations := []v1alpha1.TaintOperation{v1alpha1.TaintAdd, v1alpha1.TaintChange, v1alpha1.TaintRemove}
	errs = append(errs, selector.ValidateList(in.Operations, len(operations), path.Child("operations"))...)
	for i, operation := range in.Operations {
		if !slices.Contains(operations, operation) {
			errs = append(errs, field.NotSupported(path.Child("operations").Index(i), operation, operations))
		}
	}
	return errs
}

// ValidateRegistration returns what is wrong with a registration.
func ValidateRegistration(in *v1alpha1.TaintRegistration, path *field.Path) field.ErrorList {
	nodes := path.Child("nodeSelector")
	errs := selector.ValidateLabels(&in.NodeSelector, nodes)
	if len(in.NodeSelector.MatchLabels)+len(in.NodeSelector.MatchExpressions) == 0 {
		errs = append(errs, field.Required(nodes, "an empty selector would select every node: name at least one label"))
	}
	taints := path.Child("taints")
	if len(in.Taints) == 0 {
		errs = append(errs, field.Required(taints, "name at least one taint"))
	}
	errs = append(errs, validateEach(in.Taints, maxRegistered, taints, validateRegistered)...)
	seen := map[kind]struct{}{}
	for i, t := range in.Taints {
		of := kind{t.Key, t.Effect}
		if _, ok := seen[of]; ok {
			errs = append(errs, field.Duplicate(taints.Index(i), t.Key+":"+string(t.Effect)))
		}
		seen[of] = struct{}{}
	}
	return errs
}

func validateRegistered(t *v1alpha1.RegisteredTaint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case t.Key == "":
		errs = append(errs, field.Required(path.Child("key"), "a taint needs a key"))
	case selector.System(t.Key):
		errs = append(errs, field.Invalid(path.Child("key"), t.Key, "is for Kubernetes' own controllers to set and to remove"))
	default:
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
	}
	for _, problem := range validation.IsValidLabelValue(t.Value) {
		errs = append(errs, field.Invalid(path.Child("value"), t.Value, problem))
	}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule}
	if !slices.Contains(effects, t.Effect) {
		errs = append(errs, field.NotSupported(path.Child("effect"), t.Effect, effects))
	}
	return errs
}

func validateLimits(in *v1alpha1.TaintLimits, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if empty := (v1alpha1.TaintLimits{Window: in.Window}); *in == empty {
		errs = append(errs, field.Required(path, "limits without a limit: set at least one"))
	}
	if n := in.MaxAffectedPods; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(path.Child("maxAffectedPods"), *n, "must not be negative"))
	}
	if n := in.MaxAffectedPercent; n != nil && (*n < 0 || *n > 100) {
		errs = append(errs, field.Invalid(path.Child("maxAffectedPercent"), *n, "must be from 0 to 100"))
	}
	if skew := in.MaxTimeAddedSkew; skew != nil && skew.Duration < 0 {
		errs = append(errs, field.Invalid(path.Child("maxTimeAddedSkew"), skew.Duration.String(), "must not be negative"))
	}
	if window := in.Window.Duration; window != 0 && (window < minWindow || window > maxWindow) {
		errs = append(errs, field.Invalid(path.Child("window"), window.String(), "must be from "+minWindow.String()+" to "+maxWindow.String()))
	}
	return errs
}

// validateRuleLimits refuses limits on DeviceTaintRules in a policy that governs no taints of
// devices, where they would have no effect.
func validateRuleLimits(spec *v1alpha1.TaintPolicySpec, path *field.Path) field.ErrorList {
	if slices.ContainsFunc(spec.Taints, func(sel v1alpha1.TaintSelector) bool { return sel.Target == v1alpha1.TaintTargetDevice }) {
		return nil
	}
	const why = "is about DeviceTaintRules, and the policy selects no taints with target Device"
	var errs field.ErrorList
	if spec.Limits.RequireSelector {
		errs = append(errs, field.Forbidden(path.Child("requireSelector"), why))
	}
	if spec.Limits.RequirePreview {
		errs = append(errs, field.Forbidden(path.Child("requirePreview"), why))
	}
	return errs
}

// Warnings says what of a policy is legal and probably not meant.
func Warnings(p *v1alpha1.TaintPolicy) []string {
	var warnings []string
	spec := field.NewPath("spec")
	if len(p.Spec.Setters) == 0 {
		warnings = append(warnings, spec.Child("setters").String()+
			": there are none, so nobody may set, change or remove the taints of this policy, except Kubernetes' controllers their own and drivers those of their devices")
	}
	c := compiled{taints: selector.CompileAll(p.Spec.Taints)}
	for i := range p.Spec.Register {
		if p.Spec.Register[i].Reconcile {
			continue // then nobody can remove the taint, whether it is governed or not
		}
		for j := range p.Spec.Register[i].Taints {
			r := Registered{Taint: p.Spec.Register[i].Taints[j]}
			if !c.governs(r.taint()) {
				warnings = append(warnings, spec.Child("register").Index(i).Child("taints").Index(j).String()+
					": "+r.String()+" is not among spec.taints: whoever may write nodes can remove it again")
			}
		}
	}
	return warnings
}
