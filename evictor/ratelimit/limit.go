package ratelimit

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// Limit is how fast the pods of one line may leave.
type Limit struct {
	// Policy is the UID of the EvictionPolicy whose line it is.
	Policy types.UID
	// PerSecond is how many pods leave in a second, and Burst how many at once; less
	// than one pod is one, and no burst is what leaves in a second.
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

// interval returns how long it takes until there is another token, rounded up so that
// the pace is never exceeded.
func (l Limit) interval() time.Duration {
	rate := time.Duration(max(l.PerSecond, 1))
	return (time.Second + rate - 1) / rate
}

func (l Limit) burst() int {
	if l.Burst > 0 {
		return l.Burst
	}
	return max(l.PerSecond, 1)
}

// orderly returns limits by policy, each policy once.
func orderly(limits []Limit) []Limit {
	ordered := slices.Clone(limits)
	slices.SortStableFunc(ordered, func(a, b Limit) int { return cmp.Compare(a.Policy, b.Policy) })
	return slices.CompactFunc(ordered, func(a, b Limit) bool { return a.Policy == b.Policy })
}

// nameOf returns what a set of lines is known by.
func nameOf(limits []Limit) string {
	var name strings.Builder
	for _, limit := range limits {
		name.WriteString(string(limit.Policy))
		name.WriteByte(0) // not in a UID
	}
	return name.String()
}
