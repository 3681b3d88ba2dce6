package ratelimit

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// Limit is the rate at which the pods of one policy may leave.
type Limit struct {
	// Policy is the UID of the EvictionPolicy.
	Policy types.UID
	// PerSecond is the number of pods that may leave in a second, and Burst the number that
	// may leave at once. Both are one at least.
	PerSecond, Burst int
}

// LimitsOf returns the limits of the policies that have a pace.
func LimitsOf(policies []*eviction.Policy) []Limit {
	limits := make([]Limit, 0, len(policies))
	for _, p := range policies {
		if p.Pace != nil {
			limits = append(limits, Limit{Policy: p.UID, PerSecond: int(p.Pace.PerSecond), Burst: int(p.Pace.Burst)})
		}
	}
	return limits
}

// interval returns the time to refill one token, rounded up so that the pace is never
// exceeded.
func (l Limit) interval() time.Duration {
	rate := time.Duration(l.PerSecond)
	return (time.Second + rate - 1) / rate
}
