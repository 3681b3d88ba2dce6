package placement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
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
	additions := make([][]resourcev1.DeviceToleration, len(requests))
	if len(wanted) == 0 {
		return additions
	}
	for i := range requests {
		have := requests[i].Tolerations
		for _, t := range lacking(selector.FromDevices(have), wanted) {
			if len(have)+len(additions[i]) < resourcev1.DeviceTolerationsMaxLength {
				additions[i] = append(additions[i], resourcev1.DeviceToleration{
					Key: t.Key, Operator: resourcev1.DeviceTolerationOperator(t.Operator), Value: t.Value,
					Effect: resourcev1.DeviceTaintEffect(t.Effect), TolerationSeconds: t.TolerationSeconds,
				})
			}
		}
	}
	return additions
}

func (m Matching) deviceTolerations() []given {
	var all []given
	for _, c := range m.policies {
		all = join(all, c.claim, c.name)
	}
	return all
}

// JudgeClaim returns what is to be said about a claim as it would be stored: which
// tolerations it should have been given and has not. That opens no hole, so nothing
// is refused for it.
func (m Matching) JudgeClaim(requests []ClaimRequest) []policy.Finding {
	var found report
	m.failures(&found)
	wanted := m.deviceTolerations()
	for i := range requests {
		r := &requests[i]
		remedy := createAgain
		if len(r.Tolerations) >= resourcev1.DeviceTolerationsMaxLength {
			remedy = "a request holds no more than 16 tolerations: remove some of its own"
		}
		for _, t := range lacking(selector.FromDevices(r.Tolerations), wanted) {
			found.lacks(Gift{Policies: []string{t.policy}, Field: r.Path.String(), Value: tolerationWords(t.Toleration)}, remedy)
		}
	}
	return bounded(found)
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
	return s != nil && taint.Effect == resourcev1.DeviceTaintEffectNoExecute && slices.ContainsFunc(s.bounded, func(t corev1.Toleration) bool {
		return overlaps(&t, &corev1.Toleration{Key: taint.Key, Value: taint.Value})
	})
}

// PairOf returns the taint that is put beside one of NoExecute. When it was added
// makes no difference.
func PairOf(taint *resourcev1.DeviceTaint) resourcev1.DeviceTaint {
	return resourcev1.DeviceTaint{Key: taint.Key, Value: taint.Value, Effect: resourcev1.DeviceTaintEffectNoSchedule}
}

// overlaps reports whether some key and value exist that both tolerate.
func overlaps(a, b *corev1.Toleration) bool {
	return (a.Key == "" || b.Key == "" || a.Key == b.Key) &&
		(a.Operator == corev1.TolerationOpExists || b.Operator == corev1.TolerationOpExists || a.Value == b.Value)
}
