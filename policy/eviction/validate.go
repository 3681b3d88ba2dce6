package eviction

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// The limits of the schema. They hold for stored objects that it did not validate, too.
const (
	maxRate          = 10_000 // pods a second, and at once
	maxPercent       = 100
	minWindow        = 10 * time.Second
	maxWindow        = 24 * time.Hour
	defaultWindow    = 10 * time.Minute
	maxClasses       = 64
	maxClassName     = 253
	maxInjectSeconds = 86_400
)

// ValidatePolicy returns the faults of a policy: those that its schema cannot express, and
// those that a stored object may have in spite of the schema. A policy without faults is
// fully in force.
func ValidatePolicy(p *v1alpha1.EvictionPolicy) field.ErrorList {
	s, path := &p.Spec, field.NewPath("spec")
	errs := selector.ValidateAll(s.Taints, path.Child("taints"), selector.Taints)
	errs = append(errs, validateEffects(s.Taints, path.Child("taints"))...)
	errs = append(errs, selector.ValidateLabels(s.NamespaceSelector, path.Child("namespaceSelector"))...)
	errs = append(errs, selector.ValidateLabels(s.PodSelector, path.Child("podSelector"))...)
	errs = append(errs, validateMethod(s, path)...)
	if s.Pace != nil {
		errs = append(errs, validatePace(s.Pace, path.Child("pace"))...)
	}
	if s.Breaker != nil {
		errs = append(errs, validateBreaker(s.Breaker, path.Child("breaker"))...)
	}
	if s.Protect != nil {
		errs = append(errs, validateProtection(s.Protect, path.Child("protect"))...)
	}
	if s.Inject != nil {
		errs = append(errs, validateInjection(s.Inject, s, path)...)
	}
	if s.Window != nil {
		errs = append(errs, field.Forbidden(path.Child("window"),
			fmt.Sprintf("was renamed: write inject: {seconds: %d}", s.Window.Seconds)))
	}
	return errs
}

// validateEffects refuses selectors that select no taint that evicts.
func validateEffects(list []v1alpha1.TaintSelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		if effects := list[i].Effects; len(effects) > 0 && !slices.Contains(effects, corev1.TaintEffectNoExecute) {
			errs = append(errs, field.Invalid(path.Index(i).Child("effects"), effects,
				"no eviction comes of these: leave effects out or list NoExecute, the only effect that evicts"))
		}
	}
	return errs
}

// marks are the ways in which pods get the DisruptionTarget condition.
var marks = []v1alpha1.EvictionMark{v1alpha1.EvictionMarkBefore, v1alpha1.EvictionMarkByEvictionAPI, v1alpha1.EvictionMarkWhileTerminating}

func validateMethod(s *v1alpha1.EvictionPolicySpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	methods := []v1alpha1.EvictionMethod{v1alpha1.EvictionMethodDelete, v1alpha1.EvictionMethodEvict}
	if s.Method != "" && !slices.Contains(methods, s.Method) {
		errs = append(errs, field.NotSupported(path.Child("method"), s.Method, methods))
	}
	switch {
	case s.Mark == "" || s.Mark == v1alpha1.EvictionMarkBefore:
	case !slices.Contains(marks, s.Mark):
		errs = append(errs, field.NotSupported(path.Child("mark"), s.Mark, marks))
	case methodOf(s.Method) == v1alpha1.EvictionMethodEvict:
		errs = append(errs, field.Forbidden(path.Child("mark"), "needs method Delete: with Evict the Eviction API sets the condition"))
	}
	if s.DeleteAfter == nil {
		return errs
	}
	if s.DeleteAfter.Duration < 0 {
		errs = append(errs, field.Invalid(path.Child("deleteAfter"), s.DeleteAfter.Duration.String(), "must not be negative"))
	}
	if methodOf(s.Method) == v1alpha1.EvictionMethodDelete {
		errs = append(errs, field.Forbidden(path.Child("deleteAfter"), "needs method Evict: Delete asks no budget, so there is nothing to wait for"))
	}
	return errs
}

func validatePace(in *v1alpha1.EvictionPace, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := in.PodsPerSecond; n < 1 || n > maxRate {
		errs = append(errs, field.Invalid(path.Child("podsPerSecond"), n, fmt.Sprintf("must be from 1 to %d", maxRate)))
	}
	if n := in.Burst; n < 0 || n > maxRate {
		errs = append(errs, field.Invalid(path.Child("burst"), n, fmt.Sprintf("must be from 1 to %d, or left out to be as podsPerSecond", maxRate)))
	}
	return append(errs, validateScope(in.Scope, path.Child("scope"))...)
}

func validateBreaker(in *v1alpha1.EvictionBreaker, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if in.MaxPods == nil && in.MaxPercent == nil {
		errs = append(errs, field.Required(path, "a breaker without a limit: give maxPods, maxPercent or both"))
	}
	if n := in.MaxPods; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(path.Child("maxPods"), *n, "must be at least 1; paused: true holds everything"))
	}
	if n := in.MaxPercent; n != nil && (*n < 1 || *n > maxPercent) {
		errs = append(errs, field.Invalid(path.Child("maxPercent"), *n, "must be from 1 to 100; paused: true holds everything"))
	}
	if w := in.Window.Duration; w != 0 && (w < minWindow || w > maxWindow) {
		errs = append(errs, field.Invalid(path.Child("window"), w.String(), "must be from 10s to 24h"))
	}
	return append(errs, validateScope(in.Scope, path.Child("scope"))...)
}

func validateScope(scope v1alpha1.LimitScope, path *field.Path) field.ErrorList {
	scopes := []v1alpha1.LimitScope{v1alpha1.LimitScopeDecided, v1alpha1.LimitScopeSelected}
	if scope != "" && !slices.Contains(scopes, scope) {
		return field.ErrorList{field.NotSupported(path, scope, scopes)}
	}
	return nil
}

func validateProtection(in *v1alpha1.EvictionProtection, path *field.Path) field.ErrorList {
	names := path.Child("priorityClassNames")
	errs := selector.ValidateList(in.PriorityClassNames, maxClasses, names)
	for i, name := range in.PriorityClassNames {
		switch {
		case name == "":
			errs = append(errs, field.Required(names.Index(i), "name a priority class"))
		case len(name) > maxClassName:
			errs = append(errs, field.TooLong(names.Index(i), name, maxClassName))
		}
	}
	pods := path.Child("podSelector")
	switch {
	case in.PodSelector == nil && len(in.PriorityClassNames) == 0:
		errs = append(errs, field.Required(path, "protects nobody: give priorityClassNames, podSelector or both"))
	case in.PodSelector != nil && len(in.PodSelector.MatchLabels)+len(in.PodSelector.MatchExpressions) == 0:
		errs = append(errs, field.Required(pods, "an empty selector would protect every pod: name at least one label, or set paused to hold all evictions"))
	}
	errs = append(errs, selector.ValidateLabels(in.PodSelector, pods)...)
	return append(errs, validateNamespaces(in.Namespaces, path.Child("namespaces"))...)
}

func validateNamespaces(namespaces []string, path *field.Path) field.ErrorList {
	return selector.ValidateNamespaces(namespaces, path, `a namespace, or a prefix and "*": `, "is every namespace: leave namespaces out")
}

// validateInjection returns the errors of what a policy injects. That is a toleration
// {key, Exists, NoExecute}, so the policy must select all taints that such a toleration
// tolerates.
func validateInjection(inject *v1alpha1.EvictionInjection, s *v1alpha1.EvictionPolicySpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := inject.Seconds; n < 1 || n > maxInjectSeconds {
		errs = append(errs, field.Invalid(path.Child("inject", "seconds"), n, fmt.Sprintf("must be from 1 to %d", maxInjectSeconds)))
	}
	const given = "the policy injects a toleration of "
	for i := range s.Taints {
		t, at := &s.Taints[i], path.Child("taints").Index(i)
		if t.Key == "" || strings.Contains(t.Key, "*") {
			errs = append(errs, field.Invalid(at.Child("key"), t.Key, given+"one key: give the key in full"))
		}
		if len(t.Values) > 0 {
			errs = append(errs, field.Forbidden(at.Child("values"), given+"every value of the key: leave values out"))
		}
		if len(t.Drivers) > 0 {
			errs = append(errs, field.Forbidden(at.Child("drivers"), given+"the devices of every driver: leave drivers out"))
		}
		if t.Target == v1alpha1.TaintTargetDevice && s.PodSelector != nil {
			errs = append(errs, field.Forbidden(path.Child("podSelector"),
				"the policy injects a toleration into claims, whose pods are not known when they are created: use namespaceSelector"))
		}
	}
	return errs
}
