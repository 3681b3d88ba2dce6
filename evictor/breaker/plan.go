package breaker

import (
	"maps"
	"time"

	"github.com/tollgate-dev/tollgate/policy/eviction"
)

const (
	// usableFor is the time for which the permits of a grant are handed out.
	usableFor = 5 * time.Second
	// skew bounds the error of the time of the API server, whose answers have it in whole seconds.
	skew = 2 * time.Second
	// fitsAfter is how long the number of held pods has to be complete before a breaker compares it
	// with its room.
	fitsAfter = 5 * time.Second
	// maxGrant bounds a grant, and the room divided by floorShare is the least grant of a breaker.
	maxGrant   = 512
	floorShare = 64
)

// The reasons for which a breaker is released. The values are metric labels.
const (
	releasedByLimit = "limit"
	releasedAsFits  = "fits"
)

// situation is what a plan depends on, besides the account.
type situation struct {
	// now is by the clock of this machine, server by that of the API server.
	now, server time.Time
	// inForce is the policy in force on this replica; nil for none.
	inForce *eviction.Policy
	// live is the number of live pods in the cluster.
	live int
	// held is the number of pods that the breaker holds; negative while that is not known.
	held int
	// attempt bounds the time between a permit and the eviction.
	attempt time.Duration
	// id names the write.
	id string
}

// plan is a write of a state, by the terms of the object at that time.
type plan struct {
	terms *terms
	state state
	// granted is the reservation of the grant that the write adds; nil for none.
	granted *reservation
	// returned is the room that the write gives back.
	returned map[*reservation]int
	// moved are the counted pods that the write counts by the grant of mover instead, as of at.
	moved map[*counted]struct{}
	mover *reservation
	at    time.Time
	// exceeded is true if more pods are counted than the limit allows, such as after it was lowered.
	exceeded bool
	// tripped is true if the write trips the breaker, and released is the reason if it releases it.
	tripped  bool
	released string
}

// plan returns the next write of an account, and whether there is anything to write. It is a pure function.
func (a *account) plan(in *situation) (p *plan, changed bool) {
	before, window := a.state, time.Duration(0)
	p = &plan{terms: a.terms, returned: map[*reservation]int{}}
	if limit := a.terms.limit; limit != nil {
		window = limit.Window
		before = a.state.since(in.now, window) // Grants before the window are no reason to write.
		p.state = before.since(in.now, window)
		p.change(a, in)
	} else if a.tripped() {
		p.released = releasedByLimit
	}
	changed = p.granted != nil || !p.state.equal(&before)
	p.state.coalesce(window)
	if p.state.id = in.id; p.state.empty() {
		p.state.id = ""
	}
	return p, changed
}

// change gives room back, moves counted pods that make another attempt to a grant that ends later, and then
// adds a grant, trips the breaker or releases it. Counted pods are not moved while more pods are counted than
// the limit allows: one that has not left yet would leave above a limit that was lowered.
func (p *plan) change(a *account, in *situation) {
	limit, usable := p.giveBack(a, in)
	wanted := a.demand - usable
	if p.exceeded = p.state.pods() > limit; p.exceeded {
		wanted += len(a.moving)
	} else if len(a.moving) > 0 {
		// The pods are evicted once: if an earlier attempt has worked, the later grant counts them for longer
		// than necessary.
		p.moved, p.mover, p.at = maps.Clone(a.moving), in.reservation(usableFor), in.now
		for c := range p.moved {
			p.state.giveBack(c.by.until, 1)
		}
		p.mover.pods = len(p.moved)
		p.state.add(p.mover.grant)
	}
	room := limit - p.state.pods()
	switch {
	case !a.tripped():
		p.grant(a, in, limit, wanted)
	case a.state.generation != a.terms.generation && limit > a.state.limit && room > 0:
		p.released = releasedByLimit
	case in.held >= 0 && in.held <= room:
		p.released = releasedAsFits
	default:
		p.state.generation = a.terms.generation
	}
	if p.released != "" {
		p.state.tripped, p.state.limit, p.state.generation = time.Time{}, 0, 0
	}
}

// reservation returns a reservation of a new grant, for which permits are handed out for some time.
func (in *situation) reservation(lasts time.Duration) *reservation {
	ends := usableFor + in.attempt + skew
	return &reservation{
		grant:   grant{until: in.server.Add(ends).Truncate(time.Microsecond), end: in.now.Add(ends)},
		expires: in.now.Add(lasts),
	}
}

// giveBack gives back the room of expired reservations, and that of all reservations if the limit was
// lowered to less than what was granted. It returns the limit and the room that can still be used.
// Pods that were granted and not evicted are among the live pods on which a percentage is based.
func (p *plan) giveBack(a *account, in *situation) (limit, usable int) {
	granted := p.state.pods()
	usable, unused := a.reservations.room(in.now)
	limit = a.terms.limit.Limit(in.live, max(granted-unused, 0))
	if granted-unused+usable > limit {
		usable = 0
	}
	for _, r := range a.reservations {
		if r.room > 0 && (usable == 0 || !r.usable(in.now)) {
			p.returned[r] = r.room
			p.state.giveBack(r.until, r.room)
		}
	}
	return limit, usable
}

// grant adds a grant for pods that asked, or trips the breaker if the limit has no room. It does
// neither while attempts are under way that may give their room back. An approval has no window in
// which room could return, and does not trip.
func (p *plan) grant(a *account, in *situation, limit, wanted int) {
	room, window, lasts := limit-p.state.pods(), a.terms.limit.Window, usableFor
	if window == 0 {
		lasts = min(lasts, a.terms.expiry.Sub(in.server))
	}
	switch {
	case wanted <= 0:
	case room > 0 && lasts > 0:
		p.granted = in.reservation(lasts)
		p.granted.pods = min(wanted, maxGrant, room)
		if window > 0 {
			p.granted.pods = min(max(wanted, room/floorShare), maxGrant, room)
		} else {
			p.granted.until = time.Time{}
		}
		p.granted.room = p.granted.pods
		p.state.add(p.granted.grant)
	case window > 0 && len(a.reservations) == 0:
		p.tripped = true
		p.state.tripped = in.server.Truncate(time.Microsecond)
		p.state.limit, p.state.generation = limit, a.terms.generation
	}
}
