package placement

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// covers reports whether a pod that has the toleration have would gain nothing by
// want: have tolerates every taint that want does, and at least for as long. The
// shapes are those of AV-23; what this version does not know covers only itself.
func covers(have, want *corev1.Toleration) bool {
	if same(have, want) {
		return true
	}
	return coversKey(have, want) && coversEffect(have, want) && coversValue(have, want)
}

func coversKey(have, want *corev1.Toleration) bool {
	return have.Key == want.Key || have.Key == "" && have.Operator == corev1.TolerationOpExists
}

// coversEffect looks at the seconds too, which only count with NoExecute (NE-29).
func coversEffect(have, want *corev1.Toleration) bool {
	if have.Effect == "" {
		return true
	}
	return have.Effect == want.Effect &&
		(have.Effect != corev1.TaintEffectNoExecute || coversSeconds(have.TolerationSeconds, want.TolerationSeconds))
}

// coversSeconds takes negative seconds for none at all, as Kubernetes does (NE-05).
func coversSeconds(have, want *int64) bool {
	return have == nil || want != nil && max(*have, 0) >= max(*want, 0)
}

// coversValue compares the operators. Lt and Gt may be switched off in the cluster,
// and cover nothing but themselves.
func coversValue(have, want *corev1.Toleration) bool {
	switch operatorOf(have) {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, corev1.TolerationOpLt, corev1.TolerationOpGt:
		return operatorOf(want) == operatorOf(have) && want.Value == have.Value
	default:
		return false
	}
}

func operatorOf(t *corev1.Toleration) corev1.TolerationOperator {
	if t.Operator == "" {
		return corev1.TolerationOpEqual
	}
	return t.Operator
}

func same(a, b *corev1.Toleration) bool {
	return a.Key == b.Key && a.Operator == b.Operator && a.Value == b.Value && a.Effect == b.Effect &&
		(a.TolerationSeconds == nil) == (b.TolerationSeconds == nil) &&
		(a.TolerationSeconds == nil || *a.TolerationSeconds == *b.TolerationSeconds)
}

// coversDevice is covers for a request of devices, where seconds count with the effect
// NoExecute alone, too.
func coversDevice(have, want *resourcev1.DeviceToleration) bool {
	return covers(ofDevice(have), ofDevice(want))
}

// ofDevice returns a toleration of devices as one of a pod, which differs in types
// alone.
func ofDevice(t *resourcev1.DeviceToleration) *corev1.Toleration {
	return &corev1.Toleration{
		Key: t.Key, Operator: corev1.TolerationOperator(t.Operator), Value: t.Value,
		Effect: corev1.TaintEffect(t.Effect), TolerationSeconds: t.TolerationSeconds,
	}
}

// unbounded reports whether a toleration of devices lasts for ever, or is not about
// NoExecute.
func unbounded(t resourcev1.DeviceToleration) bool {
	return t.Effect != resourcev1.DeviceTaintEffectNoExecute || t.TolerationSeconds == nil
}

// given is something that a policy gives.
type given[T any] struct {
	value  *T
	policy string
}

// union returns what the policies give together: all but what something else among
// it covers. The order is that of the policies.
func union[T any](all []given[T], covers func(have, want *T) bool) []given[T] {
	var kept []given[T]
	for i, want := range all {
		covered := false
		for j, have := range all {
			// Of those that cover each other the first is kept.
			if i != j && covers(have.value, want.value) && (j < i || !covers(want.value, have.value)) {
				covered = true
				break
			}
		}
		if !covered {
			kept = append(kept, want)
		}
	}
	return kept
}

// lacking returns what of wanted nothing in have covers.
func lacking[T any](have []T, wanted []given[T], covers func(have, want *T) bool) []given[T] {
	var found []given[T]
	for _, want := range wanted {
		covered := false
		for i := range have {
			if covers(&have[i], want.value) {
				covered = true
				break
			}
		}
		if !covered {
			found = append(found, want)
		}
	}
	return found
}
