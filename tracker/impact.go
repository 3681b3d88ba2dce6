package tracker

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Impact is what a DeviceTaintRule selects.
type Impact struct {
	Rule Rule
	// Published is how many devices it selects in the newest slices, and Allocated
	// how many in allocations: a device that two claims share counts twice, and so
	// does one that two slices publish (DE-70).
	Published int
	Allocated int
	// Pods are the pods on nodes that use such a device, sorted. Each stands there
	// with the taint of the rule and no other, and with the effect NoExecute,
	// whatever the rule says.
	Pods []Situation
}

// Impact returns what a rule selects, or false if there is no such rule or the
// devices are not known: then it could only say too little. It costs what the rule
// selects, and holds the lock only while it collects that.
func (t *Tracker) Impact(name string) (Impact, bool) {
	taint, claims, impact, ok := t.collect(name)
	if !ok {
		return Impact{}, false
	}
	for i := range claims {
		c := claims[i].claim
		for j := range c.Devices {
			if d := &c.Devices[j]; impact.Rule.Matches(d.ID) {
				claims[i].add(d, taint)
			}
		}
		impact.Allocated += len(claims[i].selected)
	}
	impact.Pods = podsOf(claims)
	return impact, true
}

// podsOf returns the pods that have selected devices through claims, sorted.
func podsOf(claims []selectedClaim) []Situation {
	found := map[*Pod]*Situation{}
	for i := range claims {
		c := &claims[i]
		for _, pod := range c.users {
			if len(c.selected) == 0 || !c.claim.givesTo(pod, c.podGroups) {
				continue
			}
			if found[pod] == nil {
				found[pod] = &Situation{Pod: pod.public()}
			}
			found[pod].Devices = append(found[pod].Devices, c.selected...)
		}
	}
	pods := make([]Situation, 0, len(found))
	for _, situation := range found {
		pods = append(pods, *situation)
	}
	slices.SortFunc(pods, func(a, b Situation) int { return CompareKeys(a.Pod.Key, b.Pod.Key) })
	return pods
}

// selectedClaim is a claim with a selected device, and the pods that refer to it.
type selectedClaim struct {
	claim     *Claim
	users     []*Pod
	podGroups bool
	// selected are its selected devices, with the taints that matter.
	selected []TaintedDevice
}

func (c *selectedClaim) add(d *AllocatedDevice, taints []Taint) {
	c.selected = append(c.selected, TaintedDevice{
		ID: d.ID, Claim: c.claim.ClaimName, Tolerations: d.Tolerations, Window: c.claim.Window, Taints: taints,
	})
}

// collect returns the taint of a rule as it would evict, the claims with devices
// that it selects, in order, and how many devices are published.
func (t *Tracker) collect(name string) (taint []Taint, claims []selectedClaim, impact Impact, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	rule, ok := t.rules[name]
	if !ok || !t.devicesKnown {
		return nil, nil, Impact{}, false
	}
	impact.Rule = rule.Rule
	if !rule.Selects {
		return nil, nil, impact, true
	}
	evicting := rule.taint()
	evicting.Effect = corev1.TaintEffectNoExecute
	t.eachPublished(rule.Selector, func(device.ID) { impact.Published++ })
	seen := map[*claimState]struct{}{}
	t.allocated.each(rule.Selector, func(state *claimState) {
		if _, twice := seen[state]; twice {
			return
		}
		seen[state] = struct{}{}
		claims = append(claims, selectedClaim{claim: state.claim, users: slices.Clone(state.users), podGroups: t.podGroups})
	})
	return []Taint{evicting}, claims, impact, true
}
