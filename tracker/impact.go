package tracker

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"

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
func (t *Tracker) Impact(name string) (impact Impact, ok bool) {
	var claims []selectedClaim
	t.read(func() {
		rule := t.rules[name]
		if rule == nil || !t.devicesKnown {
			return
		}
		impact.Rule, ok = rule.Rule, true
		if !rule.Selects {
			return
		}
		for range t.selectedDevices(rule.Selector) {
			impact.Published++
		}
		evicting := rule.evicting()
		impact.Allocated, claims = t.collect(sets.New(rule.Selector), func(id device.ID) ([]Taint, bool) {
			return evicting, rule.Matches(id)
		})
	})
	impact.Pods = podsOf(claims)
	return impact, ok
}

// PatchImpact returns what the rules of a patch select together, or false while the
// devices are not known. The caller fills in the Rule of the answer. A device that
// several of the rules select is counted once, as often as it would be for one of them,
// and a pod stands there once: on each device with those taints of the patch that have
// the given effect, as if it were NoExecute. A pod on no such device is left out.
//
// It costs what the rules select and how many they are, and takes the lock for each pool
// anew: the numbers of devices may be of slightly different moments.
func (t *Tracker) PatchImpact(patch PatchRef, effect resourcev1.DeviceTaintEffect) (impact Impact, ok bool) {
	var claims []selectedClaim
	pools := sets.New[device.ID]()
	t.read(func() {
		if ok = t.devicesKnown; !ok {
			return
		}
		selectors := sets.New[device.Selector]()
		for _, rule := range t.written[patch.Name] {
			if rule.Patch == patch && rule.Selects {
				selectors.Insert(rule.Selector)
			}
		}
		impact.Allocated, claims = t.collect(selectors, func(id device.ID) (taints []Taint, selected bool) {
			for _, rule := range t.selecting.Match(id) {
				if rule.Value.Patch != patch {
					continue
				}
				selected = true
				if rule.Value.Taint.Effect == effect {
					taints = append(taints, rule.Value.evicting()...)
				}
			}
			return taints, selected
		})
		for selector := range selectors {
			for id := range device.Selected(t.pools, selector) {
				pools.Insert(id)
			}
		}
	})
	impact.Pods = podsOf(claims)
	for id := range pools {
		t.inPool(id, func(p *pool) {
			for _, d := range p.devices() {
				if slices.ContainsFunc(t.selecting.Match(id.Device(d.Name)), func(rule device.Entry[*ruleState]) bool {
					return rule.Value.Patch == patch
				}) {
					impact.Published++
				}
			}
		})
	}
	return impact, ok
}

// evicting returns the taint of the rule as it would evict.
func (r *ruleState) evicting() []Taint {
	taint := r.taint()
	taint.Effect = corev1.TaintEffectNoExecute
	return []Taint{taint}
}

// collect returns the claims with devices under some selectors, and how many of those devices
// are selected. Selected says that of a device, and which taints it has if it is.
func (t *Tracker) collect(under sets.Set[device.Selector], selected func(device.ID) ([]Taint, bool)) (allocated int, claims []selectedClaim) {
	seen := sets.New[*claimState]()
	for selector := range under {
		t.eachAllocated(selector, func(state *claimState) {
			if seen.Has(state) {
				return
			}
			seen.Insert(state)
			c := selectedClaim{claim: state.claim, users: slices.Clone(state.users), podGroups: t.podGroups}
			for _, d := range c.claim.Devices {
				taints, ok := selected(d.ID)
				if !ok {
					continue
				}
				allocated++
				if len(taints) > 0 {
					c.selected = append(c.selected, c.claim.tainted(d, taints))
				}
			}
			if len(c.selected) > 0 {
				claims = append(claims, c)
			}
		})
	}
	return allocated, claims
}

// podsOf returns the pods that have selected devices through claims, sorted.
func podsOf(claims []selectedClaim) []Situation {
	found := map[*Pod][]TaintedDevice{}
	for _, c := range claims {
		for _, pod := range c.users {
			if c.claim.givesTo(pod, c.podGroups) {
				found[pod] = append(found[pod], c.selected...)
			}
		}
	}
	pods := make([]Situation, 0, len(found))
	for pod, devices := range found {
		pods = append(pods, Situation{Pod: pod.public(), Devices: devices})
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

// tainted returns a device of the claim with taints.
func (c *Claim) tainted(d AllocatedDevice, taints []Taint) TaintedDevice {
	return TaintedDevice{ID: d.ID, Claim: c.ClaimName, Tolerations: d.Tolerations, Window: c.Window, Taints: taints}
}
