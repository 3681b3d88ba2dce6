package breaker

import "time"

// Limit is how many pods may be evicted within a window: the smaller of its two bounds. A limit
// without a bound allows none.
type Limit struct {
	// MaxPods and MaxPercent are nil for no such bound. The percentage is of the live pods of the
	// cluster and those evicted within the window, so that evictions do not lower the limit.
	MaxPods, MaxPercent *int32
	// Window is zero for a limit over all time, which is that of an approval.
	Window time.Duration
}

// Pods returns how many pods may be evicted within the window, if live pods are left and gone were
// evicted.
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
