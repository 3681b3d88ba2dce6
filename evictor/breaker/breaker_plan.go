package breaker

import (
	"math"
	"time"

	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// outside is what a look at a breaker takes from elsewhere, before it takes the mutex.
type outside struct {
	now, server time.Time
	// inForce is the policy by which this replica judges; nil if it does by none.
	inForce *eviction.Policy
	live    int
	held    int
	attempt time.Duration
	id      string
}

// resting reports whether there is nothing to do about a breaker that this replica
// would not know without reading its status. If its policy is not in force, only reading
// tells whether it is gone.
func (b *breaker) resting(o *outside) bool {
	if b.state == nil || b.policy == nil || b.stale || len(b.lost) > 0 || o.inForce == nil || b.outdated(o.inForce) || b.old(o.now) {
		return false
	}
	b.withdraw(b.policy, o)
	in := b.situation(b.policy, o)
	p := planFor(*b.state, in)
	return p.idle(*b.state)
}

// old reports whether the status has to be read again. What an earlier leader wrote may
// arrive after it was read here: the write goes through as long as nothing else was
// written since. Then pods would be held and the status not say so, or the other way.
func (b *breaker) old(now time.Time) bool {
	age := now.Sub(b.read)
	return age >= idlePause || b.tripped() && age >= believed
}

// prepare returns what is to be written by a policy that was just read, and false for
// nothing. What is asked for meanwhile is asked for again.
func (b *breaker) prepare(policy *eviction.Policy, o *outside) (plan, bool) {
	b.policy, b.planned = policy, policy.Generation
	b.withdraw(policy, o)
	in := b.situation(policy, o)
	b.demand = 0
	p := planFor(*b.state, in)
	return p, !p.idle(*b.state)
}

// withdraw has room given back that is not to be handed out any more: when its time is
// over, when the limit was lowered, and when the policy has no breaker any more.
func (b *breaker) withdraw(policy *eviction.Policy, o *outside) {
	surplus := 0
	if policy.Breaker == nil {
		surplus = math.MaxInt
	} else {
		in := b.situation(policy, o)
		p := plan{state: b.state.Since(o.now, in.limit.Window)}
		if _, room := p.room(in); room < 0 {
			surplus = -room
		}
		b.tidy(o.now, in.limit.Window)
	}
	b.leases.withdraw(o.now, surplus)
}

func (b *breaker) situation(policy *eviction.Policy, o *outside) *situation {
	in := &situation{
		now: o.now, server: o.server, generation: policy.Generation,
		id: o.id, live: o.live, leases: b.leases, demand: b.demand, held: o.held, attempt: o.attempt,
	}
	if policy.Breaker != nil {
		in.bounded, in.limit = true, limitOf(policy)
	}
	return in
}

// again returns after how long the breaker is to be looked at unasked.
func (b *breaker) again(now time.Time) time.Duration {
	again := idlePause
	if b.tripped() || b.state == nil {
		again = trippedPause
	}
	for _, l := range b.leases {
		if l.room > 0 {
			again = min(again, max(l.usable.Sub(now), 0)+time.Millisecond)
		}
	}
	if b.leases.open(now) > 0 || b.leases.unused() > b.leases.room(now) {
		again = min(again, trippedPause) // Room may come back, or is to be given back.
	}
	return again
}
