package breaker

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// term is what is known in one term of leadership. It is safe for concurrent use.
type term struct {
	mu       sync.Mutex
	over     bool
	breakers map[types.UID]*breaker
	// approvals are those that may let pods go, and reservations what was let go.
	approvals    []approval
	reservations map[types.UID]*reservation
	// attend starts the clerk of a breaker, and serve that of a reservation.
	attend func(*breaker)
	serve  func(*reservation)
	// look has the approvals read.
	look chan struct{}
}

func newTerm() *term {
	return &term{breakers: map[types.UID]*breaker{}, reservations: map[types.UID]*reservation{}, look: make(chan struct{}, 1)}
}

// end has no clerk start any more.
func (t *term) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}

// know has the breakers of policies attended to.
func (t *term) know(policies []*eviction.Policy) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, policy := range policies {
		t.of(policy).stir()
	}
}

// of returns the breaker of a policy. The mutex is held.
func (t *term) of(policy *eviction.Policy) *breaker {
	b, ok := t.breakers[policy.UID]
	if !ok {
		b = newBreaker(policy)
		t.breakers[policy.UID] = b
		if !t.over {
			t.attend(b)
		}
	}
	return b
}

// ask returns a permit if all breakers have room, and the policy that holds, if one
// does; else how long to wait.
func (t *term) ask(policies []*eviction.Policy, now time.Time) Answer {
	t.mu.Lock()
	defer t.mu.Unlock()
	var wait time.Duration
	for _, policy := range policies {
		b := t.of(policy)
		if b.outdated(policy) {
			wait = max(wait, b.await(now))
		}
	}
	if wait > 0 {
		return Answer{Wait: wait}
	}
	for _, policy := range policies {
		if t.breakers[policy.UID].tripped() {
			t.heldElsewhere(policies, policy.UID)
			return Answer{HeldBy: policy}
		}
	}
	for _, policy := range policies {
		if b := t.breakers[policy.UID]; b.leases.room(now) == 0 {
			b.demand++
			wait = max(wait, b.await(now))
		}
	}
	if wait > 0 {
		return Answer{Wait: wait}
	}
	permit := &Permit{mu: &t.mu}
	for _, policy := range policies {
		permit.leases = append(permit.leases, t.breakers[policy.UID].leases.take(now))
	}
	return Answer{Permit: permit}
}

// await has the clerk look, and returns when it may be through.
func (b *breaker) await(now time.Time) time.Duration {
	b.stir()
	return b.waiting.wait(now, b.pause.Sub(now))
}

// tripped returns the policies whose breakers hold.
func (t *term) tripped() []types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	var uids []types.UID
	for uid, b := range t.breakers {
		if b.tripped() {
			uids = append(uids, uid)
		}
	}
	return uids
}

// forget drops a breaker whose policy is gone.
func (t *term) forget(b *breaker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.breakers, b.uid)
}

// pause notes until when a clerk does not work.
func (t *term) pause(at *time.Time, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*at = until
}

// stir has all breakers looked at.
func (t *term) stir() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.breakers {
		b.stir()
	}
}

// stirApprovals has the approvals read. It does not block.
func (t *term) stirApprovals() {
	select {
	case t.look <- struct{}{}:
	default:
	}
}

// resting reports whether nothing is to be read or written for a breaker.
func (t *term) resting(b *breaker, o *outside) (rest, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !b.resting(o) {
		return rest{}, false
	}
	b.demand = 0 // Who still waits asks again.
	return rest{again: b.again(o.now)}, true
}

// rest returns when a breaker is to be looked at again.
func (t *term) rest(b *breaker, now time.Time, pause time.Duration) rest {
	t.mu.Lock()
	defer t.mu.Unlock()
	return rest{pause: pause, again: b.again(now)}
}

// learn takes in an object that was read. It returns the write that turned out to have
// gone through, if one did, and whether the breaker has ceased to hold without that.
func (t *term) learn(ctx context.Context, b *breaker, object *v1alpha1.EvictionPolicy, o *outside) (found *plan, ceased bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := b.tripped()
	found, own := b.learn(Read(object.Status.Breaker, o.server, o.now), o.now)
	if !own {
		logr.FromContextOrDiscard(ctx).Info("somebody else has written what a breaker counts", "policy", b.name)
	}
	return found, held && !b.tripped() && found == nil
}

// prepare returns what is to be written for an object that was read.
func (t *term) prepare(b *breaker, object *v1alpha1.EvictionPolicy, o *outside) (plan, bool) {
	policy := eviction.Compile([]v1alpha1.EvictionPolicy{*object}).All()[0]
	t.mu.Lock()
	defer t.mu.Unlock()
	return b.prepare(policy, o)
}
