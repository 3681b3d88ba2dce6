package device

import (
	resourcev1 "k8s.io/api/resource/v1"
)

// Tolerates reports whether a toleration tolerates a taint with that key, value
// and effect, as the scheduler and Kubernetes' own evictor see it (TR-11). An
// empty effect is every effect and an empty key every key, also with the operator
// Equal, where the value still counts (TR-12). There is no Lt or Gt (TR-13).
// Whether the taint has any effect at all is for the caller to know.
func Tolerates(toleration *resourcev1.DeviceToleration, key, value string, effect resourcev1.DeviceTaintEffect) bool {
	if toleration.Effect != "" && toleration.Effect != effect {
		return false
	}
	if toleration.Key != "" && toleration.Key != key {
		return false
	}
	switch toleration.Operator {
	case "", resourcev1.DeviceTolerationOpEqual:
		return toleration.Value == value
	case resourcev1.DeviceTolerationOpExists:
		return true
	}
	return false
}

// Toleration reports whether a taint is tolerated, and for how many seconds from
// when it was added; nil stands for ever. One toleration without an end is enough,
// wherever it stands in the list; of several with an end the shortest counts
// (DE-23). Only those whose effect is NoExecute have an end: the API ignores the
// seconds of all others. Kubernetes' own evictor passes over a toleration for every
// effect, which the scheduler counts, and evicts what was placed because of it
// (DE-24).
func Toleration(tolerations []resourcev1.DeviceToleration, key, value string, effect resourcev1.DeviceTaintEffect) (seconds *int64, tolerated bool) {
	for i := range tolerations {
		toleration := &tolerations[i]
		if !Tolerates(toleration, key, value, effect) {
			continue
		}
		if toleration.TolerationSeconds == nil || toleration.Effect != resourcev1.DeviceTaintEffectNoExecute {
			return nil, true
		}
		if seconds == nil || *toleration.TolerationSeconds < *seconds {
			seconds = toleration.TolerationSeconds
		}
		tolerated = true
	}
	return seconds, tolerated
}
