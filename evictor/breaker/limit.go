package breaker

import (
	"time"

	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// Limit is how many pods may leave in a window: the smaller of its two bounds. A limit
// without a bound lets nobody go.
type Limit struct {
	// MaxPods and MaxPercent are nil for no such bound. The percentage is of the live
	// pods of the cluster and of those that left in the window, so that it does not
	// shrink while they leave.
	MaxPods, MaxPercent *int32
	Window              time.Duration
}

// Pods returns how many pods may leave in the window, if so many are live and so many
// have left in the window.
func (l Limit) Pods(live, gone int) int {
	pods, bounded := 0, false
	if l.MaxPercent != nil {
		pods, bounded = max(1, max(live+gone, 0)*int(*l.MaxPercent)/100), true
	}
	if l.MaxPods != nil && (!bounded || int(*l.MaxPods) < pods) {
		pods = int(*l.MaxPods)
	}
	return max(pods, 0)
}

// limitOf returns the limit of a policy that has a breaker.
func limitOf(policy *eviction.Policy) Limit {
	b := policy.Breaker
	return Limit{MaxPods: b.MaxPods, MaxPercent: b.MaxPercent, Window: b.Window}
}
