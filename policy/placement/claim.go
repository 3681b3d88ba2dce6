package placement

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy"
)

// ClaimRequest is a request, or an alternative of one, in a claim or in a template
// of claims.
type ClaimRequest struct {
	// Path is that of its tolerations.
	Path        *field.Path
	Tolerations []resourcev1.DeviceToleration
}

// GiveClaim returns what the policies give to each request, in the order of the
// requests. A request holds no more than 16 tolerations (AV-11): what would be too
// many is left out, the last policies first, because with it the claim would be
// refused. JudgeClaim says so.
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
			all = append(all, given[resourcev1.DeviceToleration]{&c.claim[i], c.name})
		}
	}
	return union(all, coversDevice)
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
			if found.cut {
				return found.findings
			}
			found.add(warning(policy.Finding{
				Reason:  policy.PlacementMissing,
				Policy:  refTo(t.policy),
				Field:   r.Path.String(),
				Value:   tolerationWords(ofDevice(t.value)),
				Problem: "is given by the policy, and is not there",
				Remedy:  remedy,
			}))
		}
	}
	return found.findings
}
