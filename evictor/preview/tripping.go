package preview

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// Tripping is a breaker that holds some of the pods of a forecast, even if no other pod
// leaves: more of them than it lets go have to leave within its window.
type Tripping struct {
	// Policy is the name of the EvictionPolicy.
	Policy string
	// Limit is how many pods it lets go within Window.
	Limit  int
	Window time.Duration
}

// String returns the breaker as part of a sentence.
func (t Tripping) String() string {
	return fmt.Sprintf("EvictionPolicy/%s holds after %s in %s", t.Policy, counted(t.Limit, "pod"), t.Window)
}

// load are the times at which pods leave, by the policies whose breakers count them.
type load map[*eviction.Policy][]time.Time

// tripping returns the breakers that trip in a cluster with that many live pods, by name.
func (l load) tripping(live int) []Tripping {
	var tripping []Tripping
	for policy, leave := range l {
		b := policy.Breaker
		limit := b.Limit(live, 0)
		if most(leave, b.Window) > limit {
			tripping = append(tripping, Tripping{Policy: policy.Name, Limit: limit, Window: b.Window})
		}
	}
	slices.SortFunc(tripping, func(a, b Tripping) int { return cmp.Compare(a.Policy, b.Policy) })
	return tripping
}

// most returns the largest number of times within one window.
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
