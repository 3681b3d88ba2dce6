package preview

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/evictor/breaker"
	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// Tripping is a breaker that holds some of the pods of a forecast, even if nobody else
// leaves: more of them than it lets go have to leave within its window.
type Tripping struct {
	// Policy is the name of the EvictionPolicy.
	Policy string
	// Limit is how many pods it lets go within Window.
	Limit  int
	Window time.Duration
}

// String says it as part of a sentence.
func (t Tripping) String() string {
	return fmt.Sprintf("EvictionPolicy/%s holds after %s in %s", t.Policy, counted(t.Limit, "pod"), t.Window)
}

// load is when pods leave that breakers count, by the policy.
type load map[*eviction.Policy][]time.Time

// with returns the load and a pod. Nothing is made while no breaker counts any.
func (l load) with(breakers []*eviction.Policy, at time.Time) load {
	for _, policy := range breakers {
		if l == nil {
			l = load{}
		}
		l[policy] = append(l[policy], at)
	}
	return l
}

// tripping returns the breakers that trip in a cluster of so many pods, by name.
func (l load) tripping(live int) []Tripping {
	var tripping []Tripping
	for policy, leave := range l {
		b := policy.Breaker
		limit := breaker.Limit{MaxPods: b.MaxPods, MaxPercent: b.MaxPercent, Window: b.Window}.Pods(live, 0)
		if most(leave, b.Window) > limit {
			tripping = append(tripping, Tripping{Policy: policy.Name, Limit: limit, Window: b.Window})
		}
	}
	slices.SortFunc(tripping, func(a, b Tripping) int { return cmp.Compare(a.Policy, b.Policy) })
	return tripping
}

// most returns how many of the times are in one window, at most.
func most(times []time.Time, window time.Duration) int {
	slices.SortFunc(times, time.Time.Compare)
	found, first := 0, 0
	for i := range times {
		for times[i].Sub(times[first]) >= window {
			first++
		}
		found = max(found, i-first+1)
	}
	return found
}
