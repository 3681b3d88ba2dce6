package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
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
	return slices.Concat(
		selector.ValidateAll(s.Taints, path.Child("taints"), selector.Taints),
		policy.ValidateEach(s.Taints, len(s.Taints), path.Child("taints"), validateEffects),
		selector.ValidateLabels(s.NamespaceSelector, path.Child("namespaceSelector")),
		selector.ValidateLabels(s.PodSelector, path.Child("podSelector")),
		validateMethod(s, path),
		validatePace(s.Pace, path.Child("pace")),
		validateBreaker(s.Breaker, path.Child("breaker")),
		validateProtection(s.Protect, path.Child("protect")),
		validateInjection(s.Inject, s, path),
		policy.Check(s.Window == nil, field.Forbidden(path.Child("window"),
			fmt.Sprintf("was renamed: write inject: {seconds: %d}", ptr.Deref(s.Window, v1alpha1.EvictionInjection{}).Seconds))))
}

// validateEffects refuses a selector that selects no taint that evicts.
func validateEffects(s *v1alpha1.TaintSelector, path *field.Path) field.ErrorList {
	return policy.Check(len(s.Effects) == 0 || slices.Contains(s.Effects, corev1.TaintEffectNoExecute), field.Invalid(path.Child("effects"), s.Effects,
		"no eviction comes of these: leave effects out or list NoExecute, the only effect that evicts"))
}

// marks are the ways in which pods get the DisruptionTarget condition.
var marks = []v1alpha1.EvictionMark{v1alpha1.EvictionMarkBefore, v1alpha1.EvictionMarkByEvictionAPI, v1alpha1.EvictionMarkWhileTerminating}

func validateMethod(s *v1alpha1.EvictionPolicySpec, path *field.Path) field.ErrorList {
	method := cmp.Or(s.Method, v1alpha1.EvictionMethodDelete)
	deletes := method == v1alpha1.EvictionMethodDelete
	errs := slices.Concat(
		policy.ValidateEnum(method, path.Child("method"), []v1alpha1.EvictionMethod{v1alpha1.EvictionMethodDelete, v1alpha1.EvictionMethodEvict}),
		policy.ValidateEnum(cmp.Or(s.Mark, v1alpha1.EvictionMarkBefore), path.Child("mark"), marks),
		policy.Check(deletes || s.Mark == v1alpha1.EvictionMarkBefore || !slices.Contains(marks, s.Mark),
			field.Forbidden(path.Child("mark"), "needs method Delete: with Evict the Eviction API sets the condition")))
	if s.DeleteAfter == nil {
		return errs
	}
	after := path.Child("deleteAfter")
	return slices.Concat(errs,
		policy.Check(s.DeleteAfter.Duration >= 0, field.Invalid(after, s.DeleteAfter.Duration.String(), "must not be negative")),
		policy.Check(!deletes, field.Forbidden(after, "needs method Evict: Delete asks no budget, so there is nothing to wait for")))
}

func validatePace(in *v1alpha1.EvictionPace, path *field.Path) field.ErrorList {
	if in == nil {
		return nil
	}
	rate, burst := in.PodsPerSecond, in.Burst
	return slices.Concat(
		policy.Check(rate >= 1 && rate <= maxRate, field.Invalid(path.Child("podsPerSecond"), rate, fmt.Sprintf("must be from 1 to %d", maxRate))),
		policy.Check(burst >= 0 && burst <= maxRate, field.Invalid(path.Child("burst"), burst, fmt.Sprintf("must be from 1 to %d, or left out to be as podsPerSecond", maxRate))),
		validateScope(in.Scope, path.Child("scope")))
}

func validateBreaker(in *v1alpha1.EvictionBreaker, path *field.Path) field.ErrorList {
	if in == nil {
		return nil
	}
	pods, percent, window := ptr.Deref(in.MaxPods, 1), ptr.Deref(in.MaxPercent, 1), in.Window.Duration
	return slices.Concat(
		policy.Check(in.MaxPods != nil || in.MaxPercent != nil, field.Required(path, "a breaker without a limit: give maxPods, maxPercent or both")),
		policy.Check(pods >= 1, field.Invalid(path.Child("maxPods"), pods, "must be at least 1; paused: true holds everything")),
		policy.Check(percent >= 1 && percent <= maxPercent, field.Invalid(path.Child("maxPercent"), percent, "must be from 1 to 100; paused: true holds everything")),
		policy.Check(window == 0 || window >= minWindow && window <= maxWindow, field.Invalid(path.Child("window"), window.String(), "must be from 10s to 24h")),
		validateScope(in.Scope, path.Child("scope")))
}

func validateScope(scope v1alpha1.LimitScope, path *field.Path) field.ErrorList {
	return policy.ValidateEnum(cmp.Or(scope, v1alpha1.LimitScopeDecided), path, []v1alpha1.LimitScope{v1alpha1.LimitScopeDecided, v1alpha1.LimitScopeSelected})
}

func validateProtection(in *v1alpha1.EvictionProtection, path *field.Path) field.ErrorList {
	if in == nil {
		return nil
	}
	pods := in.PodSelector
	return slices.Concat(
		selector.ValidateItems(in.PriorityClassNames, maxClasses, path.Child("priorityClassNames"), validateClass),
		policy.Check(pods != nil || len(in.PriorityClassNames) > 0, field.Required(path, "protects nobody: give priorityClassNames, podSelector or both")),
		policy.Check(pods == nil || !selector.SelectsAll(pods),
			field.Required(path.Child("podSelector"), "an empty selector would protect every pod: name at least one label, or set paused to hold all evictions")),
		selector.ValidateLabels(pods, path.Child("podSelector")),
		validateNamespaces(in.Namespaces, path.Child("namespaces")))
}

func validateClass(name string, path *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "name a priority class")}
	case len(name) > maxClassName:
		return field.ErrorList{field.TooLong(path, name, maxClassName)}
	default:
		return nil
	}
}

func validateNamespaces(namespaces []string, path *field.Path) field.ErrorList {
	return selector.ValidateNamespaces(namespaces, path, `a namespace, or a prefix and "*": `, "is every namespace: leave namespaces out")
}

// validateInjection returns the errors of what a policy injects. That is a toleration
// {key, Exists, NoExecute}, so the policy must select all taints that such a toleration
// tolerates.
func validateInjection(inject *v1alpha1.EvictionInjection, s *v1alpha1.EvictionPolicySpec, path *field.Path) field.ErrorList {
	if inject == nil {
		return nil
	}
	const given = "the policy injects a toleration of "
	seconds := inject.Seconds
	return append(
		policy.Check(seconds >= 1 && seconds <= maxInjectSeconds, field.Invalid(path.Child("inject", "seconds"), seconds, fmt.Sprintf("must be from 1 to %d", maxInjectSeconds))),
		policy.ValidateEach(s.Taints, len(s.Taints), path.Child("taints"), func(t *v1alpha1.TaintSelector, at *field.Path) field.ErrorList {
			return slices.Concat(
				policy.Check(t.Key != "" && !strings.Contains(t.Key, "*"), field.Invalid(at.Child("key"), t.Key, given+"one key: give the key in full")),
				policy.Check(len(t.Values) == 0, field.Forbidden(at.Child("values"), given+"every value of the key: leave values out")),
				policy.Check(len(t.Drivers) == 0, field.Forbidden(at.Child("drivers"), given+"the devices of every driver: leave drivers out")),
				policy.Check(t.Target != v1alpha1.TaintTargetDevice || s.PodSelector == nil, field.Forbidden(path.Child("podSelector"),
					"the policy injects a toleration into claims, whose pods are not known when they are created: use namespaceSelector")))
		})...)
}
