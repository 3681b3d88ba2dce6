package placement

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/policy/selector"
)

// covers reports whether have tolerates every taint that want does, and for at least as long.
// The operators and effects are those of AV-23; an unknown one covers only itself.
func covers(have, want *corev1.Toleration) bool {
	switch {
	case have.MatchToleration(want) && ptr.Equal(have.TolerationSeconds, want.TolerationSeconds):
		return true
	case have.Key != want.Key && (have.Key != "" || have.Operator != corev1.TolerationOpExists):
		return false
	case have.Effect != "" && have.Effect != want.Effect:
		return false
	case have.Effect == corev1.TaintEffectNoExecute && !coversSeconds(have.TolerationSeconds, want.TolerationSeconds):
		return false // seconds count with NoExecute alone (NE-29)
	}
	// Lt and Gt may be switched off in the cluster, and cover only themselves.
	switch operatorOf(have) {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, corev1.TolerationOpLt, corev1.TolerationOpGt:
		return operatorOf(want) == operatorOf(have) && want.Value == have.Value
	default:
		return false
	}
}

// coversSeconds takes negative seconds for none at all, as Kubernetes does (NE-05).
func coversSeconds(have, want *int64) bool {
	return have == nil || want != nil && max(*have, 0) >= max(*want, 0)
}

func operatorOf(t *corev1.Toleration) corev1.TolerationOperator {
	return cmp.Or(t.Operator, corev1.TolerationOpEqual)
}

// coversDevice is covers for a request of devices, where seconds count with the effect
// NoExecute alone, too.
func coversDevice(have, want *resourcev1.DeviceToleration) bool {
	return covers(selector.FromDevice(have), selector.FromDevice(want))
}

// unbounded reports whether a toleration of devices lasts for ever, or is not about
// NoExecute.
func unbounded(t resourcev1.DeviceToleration) bool {
	return t.Effect != resourcev1.DeviceTaintEffectNoExecute || t.TolerationSeconds == nil
}

// given is a value that a policy adds, with the name of the policy.
type given[T any] struct {
	value  *T
	policy string
}

// join adds a value to those of earlier policies, unless one of them covers it, in the place of
// those that it covers.
func join[T any](all []given[T], value given[T], covers func(have, want *T) bool) []given[T] {
	if slices.ContainsFunc(all, func(have given[T]) bool { return covers(have.value, value.value) }) {
		return all
	}
	return append(slices.DeleteFunc(all, func(have given[T]) bool { return covers(value.value, have.value) }), value)
}

// lacking returns the wanted items that no item of have covers.
func lacking[T any](have []T, wanted []given[T], covers func(have, want *T) bool) []given[T] {
	var found []given[T]
	for _, want := range wanted {
		covered := false
		for i := range have { // by index: a copy of the item would be allocated
			covered = covered || covers(&have[i], want.value)
		}
		if !covered {
			found = append(found, want)
		}
	}
	return found
}
