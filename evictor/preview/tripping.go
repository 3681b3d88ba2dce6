package preview

import (
	"fmt"
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// load are the times at which pods leave, by the policies whose breakers count them.
type load map[*eviction.Policy][]time.Time

// tripping describes the breakers that trip in a cluster with that many live pods, as parts of a
// sentence, by name: of each, more pods have to leave within its window than it lets go.
func (l load) tripping(live int) []string {
	var tripping []string
	for policy, leave := range l {
		window, limit := policy.Breaker.Window, policy.Breaker.Limit(live, 0)
		if most(leave, window) > limit {
			tripping = append(tripping, fmt.Sprintf("EvictionPolicy/%s holds after %s in %s", policy.Name, counted(limit, "pod"), window))
		}
	}
	slices.Sort(tripping)
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
