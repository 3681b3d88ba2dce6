package devicetaints

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Needs decides which taints of devices need a paired rule: those for which claims get a
// toleration with tolerationSeconds. The zero value needs none.
type Needs struct {
	placement *placement.Set
	windows   *eviction.Set
}

// NeedsOf returns the needs of the policies in force, none for nil. window reports mode
// Window, in which EvictionPolicies give claims tolerations too.
func NeedsOf(current *policyset.Set, window bool) Needs {
	if current == nil {
		return Needs{}
	}
	needs := Needs{placement: current.Placement}
	if window {
		needs.windows = current.Evictions
	}
	return needs
}

// any reports whether any taint can need a paired rule.
func (n Needs) any() bool { return n.placement.GivesBounded() || len(n.windows.Windows()) > 0 }

// includes reports whether a taint needs a paired rule.
func (n Needs) includes(taint *resourcev1.DeviceTaint) bool {
	return n.placement.NeedsPair(taint) ||
		taint.Effect == resourcev1.DeviceTaintEffectNoExecute && n.windows.HasWindow(v1alpha1.TaintTargetDevice, taint.Key)
}

// NeededByRule reports whether a rule is the paired rule of carrier, which needs one; the
// controller would recreate it.
func NeededByRule(needs Needs, rule *resourcev1.DeviceTaintRule, carrier *tracker.Rule) bool {
	return carrier.Selects && needs.includes(new(carrier.NativeTaint())) && isPaired(rule, new(pairedRuleOf(carrier)))
}

// NeededBySlice reports whether a rule is paired with a taint in a ResourceSlice that
// needs it.
func NeededBySlice(needs Needs, rule *resourcev1.DeviceTaintRule, carrier *tracker.Slice) bool {
	for i := range carrier.Devices {
		d := &carrier.Devices[i]
		for j := range d.Taints {
			if !needs.includes(&d.Taints[j]) {
				continue
			}
			wanted := pairedRuleForPublished(&tracker.Published{
				Device: device.ID{Driver: carrier.Driver, Pool: carrier.Pool, Name: d.Name},
				Taint:  d.Taints[j], Slice: carrier.Name, SliceUID: carrier.UID,
			})
			if isPaired(rule, &wanted) {
				return true
			}
		}
	}
	return false
}

func isPaired(rule *resourcev1.DeviceTaintRule, wanted *pairedRule) bool {
	owner, managed := OwnerOf(rule)
	return managed && owner.UID == wanted.owner.UID && rule.Name == wanted.name && wanted.matches(new(tracker.RuleOf(rule)))
}
