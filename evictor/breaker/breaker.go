package breaker

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// breaker is what this replica knows of the breaker of one policy in one term. The
// mutex of the term guards it.
type breaker struct {
	name string
	uid  types.UID
	// policy is as it was last known, and nil while it has not been read.
	policy *eviction.Policy
	// state is what stands in the status; nil while that has not been read. It is as of
	// read, by the clock of this machine.
	state *State
	read  time.Time
	// planned is the generation of the policy that was last planned by.
	planned int64
	leases  leases
	// lost are writes of which nobody knows whether they went through. As long as one
	// that was begun after them has not, each may.
	lost []plan
	// stale is true after a write that failed, until the status is read again.
	stale bool
	// elsewhere is how often somebody asked whom it binds and who was told that another
	// breaker holds. The book names one breaker for a pod.
	elsewhere map[types.UID]int
	// demand is how many asked and found no room since it was last looked at.
	demand int
	// waiting are those who asked lately and have to wait.
	waiting crowd
	// steady is since when the breaker holds and all pods have been looked at; zero for
	// not.
	steady time.Time
	// pause is before when its clerk does not look at it again.
	pause time.Time
	// wake has the clerk look at it.
	wake chan struct{}
}

func newBreaker(policy *eviction.Policy) *breaker {
	return &breaker{name: policy.Name, uid: policy.UID, elsewhere: map[types.UID]int{}, wake: make(chan struct{}, 1)}
}

// stir has the clerk look at the breaker. It does not block.
func (b *breaker) stir() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// tripped reports whether the breaker holds.
func (b *breaker) tripped() bool { return b.state != nil && !b.state.Tripped.IsZero() }

// steadied reports whether the book of what is held can be believed. Who asked when the
// breaker tripped, or when this replica began to lead, is not in it at once.
func (b *breaker) steadied(now time.Time, settled bool) bool {
	if !settled || !b.tripped() {
		b.steady = time.Time{}
		return false
	}
	if b.steady.IsZero() {
		b.steady = now
	}
	return now.Sub(b.steady) >= fitsAfter
}

// outdated reports whether the policy in force says something else than what was last
// planned by.
func (b *breaker) outdated(inForce *eviction.Policy) bool {
	return b.state == nil || inForce.Generation > b.planned
}

// learn takes in what stands in the status. What stands there is what was written last,
// or one of the writes of which nobody knew, which is found then, or somebody else's:
// then nothing of what this replica was granted is left to it, as it cannot know what
// the other made of it.
func (b *breaker) learn(stands State, now time.Time) (found *plan, own bool) {
	b.stale, b.read = false, now
	if b.state != nil && b.state.Equal(stands) {
		return nil, true
	}
	for i := range b.lost {
		if b.lost[i].state.Equal(stands) {
			found = &b.lost[i]
			b.commit(found)
			return found, true
		}
	}
	first := b.state == nil
	b.state, b.leases, b.lost = &stands, nil, nil
	return nil, first
}

// commit takes in what was written.
func (b *breaker) commit(p *plan) {
	b.state, b.lost = &p.state, nil
	for l, n := range p.returned {
		l.back -= n
		l.size -= n
	}
	if p.dropped {
		b.leases = nil
	}
	if p.granted != nil {
		b.leases = append(b.leases, p.granted)
	}
}

// tidy forgets leases of which nothing is left to know.
func (b *breaker) tidy(now time.Time, window time.Duration) {
	kept := b.leases[:0]
	for _, l := range b.leases {
		done := !now.Before(l.end) && l.room+l.back == 0
		if !done && !over(Grant{End: l.end}, now, window) {
			kept = append(kept, l)
		}
	}
	clear(b.leases[len(kept):])
	b.leases = kept
}
