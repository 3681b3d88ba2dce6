package tracker

import (
	"slices"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// view is the state of a tracker, with something else in the place of one object. The zero
// overrides change nothing. It is used under the lock of the tracker.
type view struct {
	*Tracker

	// node, if given, has nodeTaints.
	node       string
	nodeTaints []Taint
	// ruleName, if given, is the name of a rule that is replaced by rule, nil for
	// none.
	ruleName string
	rule     *ruleState
	// changed, if given, stands in for the pool of that name.
	changed   *pool
	changedID device.ID
	// patch, if given, stands in for the rules of the patches of its name.
	patch *patchedView
}

// actual is the view without overrides.
func (t *Tracker) actual() *view { return &view{Tracker: t} }

// situation returns what holds for a pod.
func (v *view) situation(pod *Pod) Situation {
	s := Situation{Pod: pod.public(), Taints: v.nodes[pod.NodeName].taints, Devices: v.held(pod)}
	if v.node == pod.NodeName { // Which is not empty: pods without a node are not kept.
		s.Taints = v.nodeTaints
	}
	return s
}

// held returns the devices with NoExecute taints that a pod has through its claims.
func (v *view) held(pod *Pod) []TaintedDevice {
	if !v.devicesKnown {
		return nil
	}
	var tainted []TaintedDevice
	states := pod.claimStates()
	for i, state := range states {
		if slices.Contains(states[:i], state) || state.claim == nil || !state.claim.givesTo(pod, v.podGroups) {
			continue
		}
		for _, held := range state.claim.Devices {
			if taints := v.evicting(held.ID); len(taints) > 0 {
				tainted = append(tainted, state.claim.tainted(held, taints))
			}
		}
	}
	return tainted
}

// evicting returns the NoExecute taints of a device.
func (v *view) evicting(id device.ID) []Taint {
	return evictingOnly(v.taints(id))
}

// taints returns the taints of a device, whatever their effect (TR-03): those of
// its slice, then those of the rules by name. None hides another, even with the
// same key and effect (DE-21).
func (v *view) taints(id device.ID) []Taint {
	own := v.published(id)
	rules := v.selecting.Match(id)
	if v.patch != nil {
		return v.patch.taints(id, own, rules)
	}
	if v.ruleName == "" && len(rules) == 0 {
		return own
	}
	if v.ruleName == "" && len(rules) == 1 && len(own) == 0 {
		return rules[0].Value.taints
	}
	taints := make([]Taint, len(own), len(own)+len(rules)+1)
	copy(taints, own)
	replaced := v.ruleName == "" || v.rule == nil || !v.rule.Matches(id)
	for _, entry := range rules {
		if !replaced && entry.Name >= v.ruleName {
			taints, replaced = append(taints, v.rule.taint()), true
		}
		if v.ruleName == "" || entry.Name != v.ruleName {
			taints = append(taints, entry.Value.taint())
		}
	}
	if !replaced {
		taints = append(taints, v.rule.taint())
	}
	return taints
}

// published returns the taints that slices put on a device.
func (v *view) published(id device.ID) []Taint {
	p := v.pools[id.Driver][id.Pool]
	if v.changed != nil && id == v.changedID.Device(id.Name) {
		p = v.changed
	}
	if p == nil {
		return nil
	}
	return p.tainted[id.Name]
}
