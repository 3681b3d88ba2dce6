package placement

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// ClaimRequest is a request, or an alternative of one, in a claim or in a template
// of claims.
type ClaimRequest struct {
	// Path is that of its tolerations.
	Path        *field.Path
	Tolerations []resourcev1.DeviceToleration
}

// GiveClaim returns the tolerations that the policies add to each request, in the order of
// the requests. A request has at most 16 tolerations (AV-11), or the claim would be refused;
// additions beyond that are omitted, those of the last policies first. JudgeClaim warns about
// omitted additions.
func (m Matching) GiveClaim(requests []ClaimRequest) [][]resourcev1.DeviceToleration {
	wanted := m.deviceTolerations()
	additions := make([][]resourcev1.DeviceToleration, 0, len(requests))
	for i := range requests {
		have := requests[i].Tolerations
		var added []resourcev1.DeviceToleration
		for _, t := range lacking(have, wanted, coversDevice) {
			if len(have)+len(added) >= resourcev1.DeviceTolerationsMaxLength {
				break
			}
			added = append(added, *t.value.DeepCopy())
		}
		additions = append(additions, added)
	}
	return additions
}

func (m Matching) deviceTolerations() []given[resourcev1.DeviceToleration] {
	var all []given[resourcev1.DeviceToleration]
	for _, c := range m.policies {
		for i := range c.claim {
			all = join(all, given[resourcev1.DeviceToleration]{&c.claim[i], c.name}, coversDevice)
		}
	}
	return all
}

// JudgeClaim returns what is to be said about a claim as it would be stored: which
// tolerations it should have been given and has not. That opens no hole, so nothing
// is refused for it.
func (m Matching) JudgeClaim(requests []ClaimRequest) []policy.Finding {
	found := report{most: MaxFindings}
	m.failures(&found)
	wanted := m.deviceTolerations()
	for i := range requests {
		r := &requests[i]
		remedy := createAgain
		if len(r.Tolerations) >= resourcev1.DeviceTolerationsMaxLength {
			remedy = "a request holds no more than 16 tolerations: remove some of its own"
		}
		for _, t := range lacking(r.Tolerations, wanted, coversDevice) {
			found.add(warning(policy.Finding{
				Reason:  policy.PlacementMissing,
				Policy:  refTo(t.policy),
				Field:   r.Path.String(),
				Value:   tolerationWords(selector.FromDevice(t.value)),
				Problem: "is given by the policy, and is not there",
				Remedy:  remedy,
			}))
		}
	}
	return found.findings
}

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
