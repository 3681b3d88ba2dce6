package device

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// Toleration reports whether a taint is tolerated, and for how many seconds from
// when it was added; nil stands for ever. A single toleration tolerates as the
// scheduler and Kubernetes' own evictor see it (TR-11). Whether the taint has any
// effect at all is for the caller to know.
//
// The list is Tollgate's own to judge, and has no counterpart in a library. One
// toleration without an end is enough, wherever it stands in the list; of several
// with an end the shortest counts (DE-23). Only those whose effect is NoExecute have
// an end: the API ignores the seconds of all others. Kubernetes' own evictor passes
// over a toleration for every effect, which the scheduler counts, and evicts what was
// placed because of it (DE-24).
func Toleration(tolerations []resourcev1.DeviceToleration, key, value string, effect resourcev1.DeviceTaintEffect) (seconds *int64, tolerated bool) {
	taint := resourcev1.DeviceTaint{Key: key, Value: value, Effect: effect}
	for i := range tolerations {
		toleration := &tolerations[i]
		if !resourceclaim.ToleratesTaint(*toleration, taint) {
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
