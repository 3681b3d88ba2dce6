package tracker

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// PatchImpact returns what the rules of a patch select together, or false while the
// devices are not known. The Rule of the answer is left to who asks. A device that
// several of the rules select is counted once, as often as it would be for one of them,
// and a pod stands there once: on each device with those taints of the patch that have
// the given effect, as if it were NoExecute. A pod on no such device is left out.
//
// It costs what the rules select and how many they are, and looks at one pool at a
// time, so that no writer waits for all of it: the numbers of devices may be of slightly
// different moments.
func (t *Tracker) PatchImpact(patch PatchRef, effect resourcev1.DeviceTaintEffect) (Impact, bool) {
	claims, allocated, pools, ok := t.collectPatch(patch, effect)
	if !ok {
		return Impact{}, false
	}
	impact := Impact{Allocated: allocated, Pods: podsOf(claims)}
	for name := range pools {
		impact.Published += t.publishedFor(patch, name)
	}
	return impact, true
}

// collectPatch returns the claims with devices that the rules of a patch select, how many
// such devices are allocated, and the pools that may have some.
func (t *Tracker) collectPatch(patch PatchRef, effect resourcev1.DeviceTaintEffect) (claims []selectedClaim, allocated int, pools map[poolName]struct{}, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.devicesKnown {
		return nil, 0, nil, false
	}
	selectors := t.selectorsOf(patch)
	pools = map[poolName]struct{}{}
	seen := map[*claimState]struct{}{}
	for selector := range selectors {
		t.allocated.each(selector, func(state *claimState) {
			if _, twice := seen[state]; twice {
				return
			}
			seen[state] = struct{}{}
			c, selected := t.selectedBy(state, patch, effect)
			allocated += selected
			claims = append(claims, c)
		})
	}
	t.addPools(pools, selectors)
	return claims, allocated, pools, true
}

// selectorsOf returns the selectors of the rules of a patch.
func (t *Tracker) selectorsOf(patch PatchRef) map[device.Selector]struct{} {
	selectors := map[device.Selector]struct{}{}
	for _, rule := range t.written[patch.Name] {
		if rule.Patch == patch && rule.Selects {
			selectors[rule.Selector] = struct{}{}
		}
	}
	return selectors
}

// selectedBy returns a claim with those of its devices that have taints of a patch with an
// effect, and how many of them the patch selects at all.
func (t *Tracker) selectedBy(state *claimState, patch PatchRef, effect resourcev1.DeviceTaintEffect) (selectedClaim, int) {
	c := selectedClaim{claim: state.claim, users: slices.Clone(state.users), podGroups: t.podGroups}
	selected := 0
	for i := range c.claim.Devices {
		d := &c.claim.Devices[i]
		rules, evicting := 0, []Taint(nil)
		for _, rule := range t.selecting.Match(d.ID) {
			if rule.Value.Patch != patch {
				continue
			}
			rules++
			if rule.Value.Taint.Effect == effect {
				taint := rule.Value.taint()
				taint.Effect = corev1.TaintEffectNoExecute
				evicting = append(evicting, taint)
			}
		}
		if rules > 0 {
			selected++
		}
		if len(evicting) > 0 {
			c.add(d, evicting)
		}
	}
	return c, selected
}

// addPools adds the pools with devices that may be selected. Selectors that differ only
// in the name of the device are looked up once.
func (t *Tracker) addPools(pools map[poolName]struct{}, selectors map[device.Selector]struct{}) {
	type reach struct {
		pool               poolName
		oneDriver, onePool bool
	}
	looked := map[reach]struct{}{}
	for selector := range selectors {
		var of reach
		of.pool.driver, of.oneDriver = selector.Driver()
		of.pool.pool, of.onePool = selector.Pool()
		if _, again := looked[of]; again {
			continue
		}
		looked[of] = struct{}{}
		t.eachPool(selector, func(name poolName, _ *pool) { pools[name] = struct{}{} })
	}
}

// publishedFor returns how many of the devices that a pool publishes a patch selects.
func (t *Tracker) publishedFor(patch PatchRef, name poolName) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p, ok := t.pools[name.driver][name.pool]
	if !ok {
		return 0
	}
	count := 0
	for _, slice := range p.generations[p.newest] {
		for i := range slice.Devices {
			if slices.ContainsFunc(t.selecting.Match(deviceIn(name, slice.Devices[i].Name)), func(rule device.Entry[*ruleState]) bool {
				return rule.Value.Patch == patch
			}) {
				count++
			}
		}
	}
	return count
}
