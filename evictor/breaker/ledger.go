package breaker

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
)

const (
	// writePause is the pause after a write, and after a check that grants nothing to pods that asked.
	writePause = 250 * time.Millisecond
	// writeTakes is the usual duration of a write.
	writeTakes = 25 * time.Millisecond
	// spread is the time between two pods that ask again, and longestWait bounds their wait, so that
	// many waiting pods do not keep a machine busy.
	spread      = 500 * time.Microsecond
	longestWait = 2 * time.Second
	// freshFor is the time for which the status of a tripped breaker counts as it was read.
	freshFor = 5 * time.Second
	// activePause is the time between two checks of a ledger that is tripped or has reservations, and
	// idlePause that of any other ledger.
	activePause = time.Second
	idlePause   = time.Minute
	// maxLost bounds the lost writes of a ledger. A write that was dropped counts as that of another
	// writer: its grant counts in full.
	maxLost = 32
)

// reservation is the part of a grant for which this replica hands out permits.
type reservation struct {
	// grant is the grant as it was written.
	grant

	// expires is when the last permit is handed out. What is left then is given back.
	expires time.Time
	// room is the number of permits that are left, and open the number of those that are not settled.
	room, open int
	// closed is true after a plan to give the room back.
	closed bool
}

// usable reports whether permits can be handed out.
func (r *reservation) usable(now time.Time) bool { return !r.closed && before(now, r.expires) }

// before reports whether a time is in the future by both clocks of the machine: the monotonic clock
// stops while the machine is suspended, and the wall clock can be set.
func before(now, t time.Time) bool {
	return now.Before(t) && now.Round(0).Before(t.Round(0))
}

// reservations are in the order in which they were granted.
type reservations []*reservation

// room returns how many permits can be handed out, and how many were not, those of expired
// reservations included.
func (all reservations) room(now time.Time) (usable, unused int) {
	for _, r := range all {
		unused += r.room
		if r.usable(now) {
			usable += r.room
		}
	}
	return usable, unused
}

// take takes a permit of the oldest reservation that has one; the caller makes sure that one does.
func (all reservations) take(now time.Time) *reservation {
	r := all[slices.IndexFunc(all, func(r *reservation) bool { return r.room > 0 && r.usable(now) })]
	r.room--
	r.open++
	return r
}

// account is the part of a ledger that a plan depends on.
type account struct {
	// state and terms are as they were last read or written; terms is nil until the first read.
	state        state
	terms        *terms
	reservations reservations
	// demand is the number of pods that found no room since the last plan.
	demand int
	// moving are the counted pods that asked since the last plan, after the last permit of the grant
	// that counts them.
	moving map[*counted]struct{}
	// exceeded is true if the last plan found more pods counted than the limit allows.
	exceeded bool
}

// counted is a pod whose eviction may have worked.
type counted struct {
	// at is when the pod was counted, or moved to a later grant.
	at time.Time
	// by is the reservation of the grant that counts the pod; nil if an approval does.
	by *reservation
}

// within reports whether a pod was counted within the window.
func (c *counted) within(now time.Time, window time.Duration) bool {
	return before(now, c.at.Add(window))
}

// covers reports whether a grant counts another attempt that begins now.
func (c *counted) covers(now time.Time) bool { return c.by == nil || before(now, c.by.expires) }

// tripped reports whether the breaker is tripped.
func (a *account) tripped() bool { return !a.state.tripped.IsZero() }

// ledger counts the pods that the breaker of a policy or an approval lets go, in one term of leadership.
// The mutex of the Keeper guards it.
type ledger struct {
	account

	name     string
	uid      types.UID
	approval bool
	// policy is the policy for which a pod last asked.
	policy *eviction.Policy
	// read is when the state was read, by the clock of this machine; zero after a write that failed.
	read time.Time
	// lostWrites are the writes without an answer. Each may still be carried out, until a later write is.
	lostWrites []plan
	// counted are the pods that were counted within the window, by UID. Their number is bounded by that
	// of the pods that the breaker and approvals let go within a window.
	counted map[types.UID]*counted
	// incompleteAt is when the count of held pods was last incomplete, since the breaker tripped at trip.
	incompleteAt, trip time.Time
	// waiting is the number of pods that have to wait since the last plan.
	waiting int
	// pause is when the ledger may be checked again. failed is true if the last check failed; only
	// checks use it.
	pause  time.Time
	failed bool
}

// object returns an empty object to read into, and its kind.
func (l *ledger) object() (object client.Object, kind string) {
	if l.approval {
		return &v1alpha1.EvictionApproval{}, "EvictionApproval"
	}
	return &v1alpha1.EvictionPolicy{}, "EvictionPolicy"
}

// upToDate reports whether the terms are at least as new as a policy in force.
func (l *ledger) upToDate(inForce *eviction.Policy) bool {
	return l.terms != nil && l.terms.generation >= inForce.Generation
}

// countedWithin returns a pod that was counted within the window; nil if it was not, or if it is held because
// the limit was lowered.
func (l *ledger) countedWithin(pod types.UID, now time.Time, window time.Duration) *counted {
	c := l.counted[pod]
	if c == nil || !c.within(now, window) || l.tripped() && l.exceeded && !c.covers(now) {
		return nil
	}
	return c
}

// forgetDemand forgets the pods that asked before the last plan, and returns how long to pause if nothing is
// written for them. Those that still wait ask again.
func (l *ledger) forgetDemand() (pause time.Duration) {
	if l.demand+len(l.moving) > 0 {
		pause = writePause
	}
	l.demand, l.waiting = 0, 0
	clear(l.moving)
	return pause
}

// stale reports whether the object has to be read before a plan: its spec changed, the result of a write
// is not known, the policy may be deleted, or the write of an earlier leader may have arrived after the
// last read. Without another read, the status could say that a breaker is not tripped which holds pods.
func (l *ledger) stale(in *situation) bool {
	age := in.now.Sub(l.read)
	return len(l.lostWrites) > 0 || age >= idlePause || l.tripped() && age >= freshFor ||
		!l.approval && (in.inForce == nil || !l.upToDate(in.inForce))
}

// next returns the next write; nil for none. Room that it gives back is not handed out any more, not
// even to a pod that asked before and has waited for the mutex since.
func (l *ledger) next(in *situation) *plan {
	limit := l.terms.limit
	// Reservations that are used up or before the window are dropped, and so are pods that were counted
	// before it. A permit that is not settled when its reservation ends counts as used.
	l.reservations = slices.DeleteFunc(l.reservations, func(r *reservation) bool {
		return limit == nil || r.room == 0 && (r.open == 0 || !in.now.Before(r.end)) || over(r.end, in.now, limit.Window)
	})
	maps.DeleteFunc(l.counted, func(_ types.UID, c *counted) bool { return limit == nil || !c.within(in.now, limit.Window) })
	p, changed := l.plan(in)
	l.exceeded = p.exceeded
	if !changed {
		return nil
	}
	for r := range p.returned {
		r.closed = true
	}
	return p
}

// commit takes over a write that was carried out.
func (l *ledger) commit(p *plan) {
	l.state, l.lostWrites = p.state, nil
	for r, room := range p.returned {
		r.room -= room
	}
	if p.granted != nil {
		l.reservations = append(l.reservations, p.granted)
	}
	for c := range p.moved {
		c.by, c.at = p.mover, p.at
	}
}
