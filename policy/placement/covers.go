package placement

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
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
	operator := operatorOf(have)
	_, known := signs[operator]
	return operator == corev1.TolerationOpExists || known && operatorOf(want) == operator && want.Value == have.Value
}

// coversSeconds takes negative seconds for none at all, as Kubernetes does (NE-05).
func coversSeconds(have, want *int64) bool {
	return have == nil || want != nil && max(*have, 0) >= max(*want, 0)
}

func operatorOf(t *corev1.Toleration) corev1.TolerationOperator {
	return cmp.Or(t.Operator, corev1.TolerationOpEqual)
}

// unbounded reports whether a toleration lasts for ever, or is not about NoExecute.
func unbounded(t corev1.Toleration) bool {
	return t.Effect != corev1.TaintEffectNoExecute || t.TolerationSeconds == nil
}

// given is a toleration that a policy adds, with the name of the policy. Those of claims are as
// selector.FromDevice returns them.
type given struct {
	*corev1.Toleration

	policy string
}

// join adds the tolerations of a policy to those of earlier ones, unless one of these covers it, in
// the place of those that it covers.
func join(all []given, tolerations []corev1.Toleration, policy string) []given {
	for i := range tolerations {
		t := &tolerations[i]
		if !slices.ContainsFunc(all, func(have given) bool { return covers(have.Toleration, t) }) {
			all = append(slices.DeleteFunc(all, func(have given) bool { return covers(t, have.Toleration) }), given{t, policy})
		}
	}
	return all
}

// lacking returns the wanted tolerations that none of have covers.
func lacking(have []corev1.Toleration, wanted []given) []given {
	var found []given
	for _, want := range wanted {
		if !slices.ContainsFunc(have, func(t corev1.Toleration) bool { return covers(&t, want.Toleration) }) {
			found = append(found, want)
		}
	}
	return found
}
