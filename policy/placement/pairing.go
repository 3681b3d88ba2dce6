package placement

import (
	resourcev1 "k8s.io/api/resource/v1"
)

// A claim that tolerates a NoExecute taint for a while is a trap. The scheduler
// does not look at the seconds: it gives the tainted device to the claim of the pod
// that was evicted from it, or of another, and if the seconds are over, which count
// from when the device was tainted, that pod is evicted at once. A NoSchedule taint
// beside it ends that, because a toleration of NoExecute does not tolerate it.

// GivesBounded reports whether some policy gives claims a toleration for a while of
// taints of NoExecute.
func (s *Set) GivesBounded() bool { return s != nil && len(s.bounded) > 0 }

// NeedsPair reports whether a device with the taint needs a NoSchedule taint beside
// it: some policy gives claims a toleration of it that ends.
func (s *Set) NeedsPair(taint *resourcev1.DeviceTaint) bool {
	if s == nil || taint.Effect != resourcev1.DeviceTaintEffectNoExecute {
		return false
	}
	for i := range s.bounded {
		if tolerates(&s.bounded[i], taint) {
			return true
		}
	}
	return false
}

// PairOf returns the taint that is put beside one of NoExecute. When it was added
// makes no difference.
func PairOf(taint *resourcev1.DeviceTaint) resourcev1.DeviceTaint {
	return resourcev1.DeviceTaint{Key: taint.Key, Value: taint.Value, Effect: resourcev1.DeviceTaintEffectNoSchedule}
}

// tolerates reports whether t, which is valid and of NoExecute, tolerates a taint of
// NoExecute.
func tolerates(t *resourcev1.DeviceToleration, taint *resourcev1.DeviceTaint) bool {
	if t.Key != "" && t.Key != taint.Key {
		return false
	}
	return t.Operator == resourcev1.DeviceTolerationOpExists || t.Value == taint.Value
}

// overlaps reports whether some key and value exist that both tolerate.
func overlaps(a, b *resourcev1.DeviceToleration) bool {
	if a.Key != "" && b.Key != "" && a.Key != b.Key {
		return false
	}
	return a.Operator == resourcev1.DeviceTolerationOpExists ||
		b.Operator == resourcev1.DeviceTolerationOpExists || a.Value == b.Value
}
