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

// Needs says which taints of devices need a twin: those of which claims are given a
// toleration that ends. The zero value needs none.
type Needs struct {
	placement *placement.Set
	windows   *eviction.Set
}

// NeedsOf returns the needs by the policies in force, none of nil. Window says that
// Tollgate is in mode Window, where EvictionPolicies give claims tolerations too.
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

// some reports whether any taint can need a twin.
func (n Needs) some() bool { return n.placement.GivesBounded() || len(n.windows.Windows()) > 0 }

// pair reports whether a taint needs a twin.
func (n Needs) pair(taint *resourcev1.DeviceTaint) bool {
	return n.placement.NeedsPair(taint) ||
		taint.Effect == resourcev1.DeviceTaintEffectNoExecute && n.windows.HasWindow(v1alpha1.TaintTargetDevice, taint.Key)
}

// NeededByRule reports whether a rule is the twin of another that needs one: whether it
// would be made again at once.
func NeededByRule(needs Needs, rule *resourcev1.DeviceTaintRule, carrier *tracker.Rule) bool {
	return carrier.Selects && needs.pair(new(carrier.NativeTaint())) && isTwin(rule, new(twinOf(carrier)))
}

// NeededBySlice reports whether a rule is the twin of a taint in a ResourceSlice that
// needs one.
func NeededBySlice(needs Needs, rule *resourcev1.DeviceTaintRule, carrier *tracker.Slice) bool {
	for i := range carrier.Devices {
		d := &carrier.Devices[i]
		for j := range d.Taints {
			if !needs.pair(&d.Taints[j]) {
				continue
			}
			wanted := twinOfPublished(&tracker.Published{
				Device: device.ID{Driver: carrier.Driver, Pool: carrier.Pool, Name: d.Name},
				Taint:  d.Taints[j], Slice: carrier.Name, SliceUID: carrier.UID,
			})
			if isTwin(rule, &wanted) {
				return true
			}
		}
	}
	return false
}

func isTwin(rule *resourcev1.DeviceTaintRule, wanted *twin) bool {
	owner, ours := OwnerOf(rule)
	return ours && owner.UID == wanted.owner.UID && rule.Name == wanted.name && wanted.same(new(tracker.RuleOf(rule)))
}
