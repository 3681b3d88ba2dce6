package ratelimit

import (
	"maps"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// disorder is the difference between times that workers may pass out of order. A clock that
// goes back by more was set.
const disorder = time.Second

// bucket holds the tokens of a policy. Each token is available, is held by a pod, or was
// used and is not refilled yet. The bucket does not count used tokens; it stores when all
// are refilled, so that nothing has to be done as time passes.
type bucket struct {
	Limit
	// full is when all used tokens are refilled: at most burst intervals from the latest use.
	full time.Time
	// held counts the tokens that pods hold. Used and held tokens together are at most
	// burst, because all pods that hold one may leave at the same moment.
	held int
	// used is when the token that a pod used last is refilled, if no use is taken back
	// after it. At most 2*burst pods are stored.
	used map[tracker.Key]time.Time
	// returned is the sum of the times by which uses that were taken back moved full.
	returned time.Duration
}

// lack returns the time until all used tokens are refilled. After the clock was set back,
// this is at most the time to fill an empty bucket.
func (b *bucket) lack(now time.Time) time.Duration {
	if latest := now.Add(time.Duration(b.Burst) * b.interval()); b.full.Sub(latest) > disorder {
		b.full = latest
	}
	return max(b.full.Sub(now), 0)
}

// wait returns the time until a token is available, if that many more are held. It is
// computed as if all pods that hold one leave now. A pod that leaves later makes the wait
// longer; a pod that leaves now does not.
func (b *bucket) wait(now time.Time, more int) time.Duration {
	return max(b.lack(now)+time.Duration(b.held+more-b.Burst+1)*b.interval(), 0)
}

// settle ends the hold of a pod on a token. The refill of a used token starts only now,
// because the time at which the pod left is not known. An earlier use by the same pod is
// taken back as far as it is not refilled: time that has passed is not credited again.
func (b *bucket) settle(now time.Time, key tracker.Key, used bool) {
	b.held--
	if !used {
		return
	}
	lack := b.lack(now)
	back := max(min(b.used[key].Add(-b.returned).Sub(now), b.interval(), lack), 0)
	b.returned += back
	b.full = now.Add(lack + b.interval() - back)
	b.used[key] = b.full.Add(b.returned)
	if len(b.used) > 2*b.Burst {
		maps.DeleteFunc(b.used, func(_ tracker.Key, full time.Time) bool { return !full.Add(-b.returned).After(now) })
	}
}

// change sets another limit. The number of available tokens stays the same, but is at
// most the new burst: a change does not allow another burst.
func (b *bucket) change(now time.Time, limit Limit) {
	lack := max(float64(limit.Burst-b.Burst)+float64(b.lack(now))/float64(b.interval()), 0)
	b.Limit, b.full = limit, now.Add(time.Duration(math.Ceil(lack*float64(limit.interval()))))
	clear(b.used)
}

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
