package breaker

import "time"

const (
	// usableFor is how long permits of a grant are handed out. What is left then is
	// given back.
	usableFor = 5 * time.Second
	// skew is by how much the time of the API server may be misjudged: its answers
	// tell it to a second.
	skew = 2 * time.Second
	// fitsAfter is how long a breaker holds at least before it looks whether what is
	// held fits.
	fitsAfter = 5 * time.Second
	// mostAtOnce bounds a grant, and the share of the room that is granted at least.
	mostAtOnce = 512
	floorShare = 64
)

// Why a breaker does not hold any more. The values are metric labels.
const (
	releasedByLimit = "limit"
	releasedAsFits  = "fits"
)

// situation is what a plan follows from, besides the state.
type situation struct {
	// now is by the clock of this machine, server by that of the API server.
	now, server time.Time
	// bounded is false when the policy has no breaker any more.
	bounded    bool
	limit      Limit
	generation int64
	// live is how many pods the cluster has.
	live int
	// leases are those of this replica.
	leases leases
	// demand is how many asked and found no room.
	demand int
	// held is how many pods the breaker holds; negative while that is not known.
	held int
	// id is of the write.
	id string
	// attempt bounds how long after its permit a pod goes.
	attempt time.Duration
}

// plan is what is to be written.
type plan struct {
	state State
	// granted has room for what is granted, and is nil for nothing.
	granted *lease
	// returned is how much room is given back, of which lease.
	returned map[*lease]int
	// dropped is true when the leases that there were do not count any more.
	dropped bool
	// tripped is true when the breaker begins to hold, and released is why it ceases.
	tripped  bool
	released string
}

// planFor returns what is to be written at a time when that state stands there. It is
// the same state where nothing is.
func planFor(state State, in *situation) plan {
	if !in.bounded {
		p := plan{dropped: true}
		if !state.Tripped.IsZero() {
			p.released = releasedByLimit
		}
		return p
	}
	p := plan{state: state.Since(in.now, in.limit.Window)}
	p.giveBack(in)
	if !state.Tripped.IsZero() {
		p.cease(in)
	}
	if p.state.Tripped.IsZero() {
		p.grant(in)
	}
	if p.idle(state) {
		p.state = state // What the window has left behind need not be written.
	} else {
		p.state = p.state.Coalesce(in.limit.Window).written(in.id)
	}
	return p
}

// idle reports whether the plan changes nothing that counts.
func (p *plan) idle(state State) bool {
	if p.dropped {
		return p.state.Equal(state)
	}
	return p.granted == nil && len(p.returned) == 0 && !p.tripped && p.released == "" &&
		state.Generation == p.state.Generation
}

// giveBack gives back what was withdrawn.
func (p *plan) giveBack(in *situation) {
	for _, l := range in.leases {
		if l.back == 0 || over(Grant{End: l.end}, in.now, in.limit.Window) {
			continue
		}
		if p.returned == nil {
			p.returned = map[*lease]int{}
		}
		p.returned[l] = l.back
		p.state = p.state.Return(l.until, l.back)
	}
}

// cease looks whether the breaker need not hold any more.
func (p *plan) cease(in *situation) {
	limit, room := p.room(in)
	switch {
	case p.state.Generation != in.generation && limit > p.state.Limit && room > 0:
		p.released = releasedByLimit
	case in.held >= 0 && in.held <= room:
		p.released = releasedAsFits
	default:
		p.state.Generation = in.generation
		return
	}
	p.untrip()
}

func (p *plan) untrip() { p.state.Tripped, p.state.Limit, p.state.Generation = time.Time{}, 0, 0 }

// room returns the limit, and how many pods may go by it besides those that were
// granted. Of the basis of a percentage the pods that have not gone are a part anyway.
func (p *plan) room(in *situation) (limit, room int) {
	gone := p.state.Gone(in.now, in.limit.Window)
	unused := in.leases.unused()
	for _, returned := range p.returned {
		unused -= returned
	}
	limit = in.limit.Pods(in.live, max(gone-unused, 0))
	return limit, limit - gone
}

// grant grants what was asked for, and trips the breaker where there is no room. While
// pods are on their way of whom it is not known yet whether they go, it does neither.
func (p *plan) grant(in *situation) {
	wanted := in.demand - in.leases.room(in.now)
	if wanted <= 0 {
		return
	}
	limit, room := p.room(in)
	switch {
	case room > 0:
		n := min(max(wanted, room/floorShare), mostAtOnce, room)
		usable := in.now.Add(usableFor)
		until := in.server.Add(usableFor + in.attempt + skew).Truncate(time.Microsecond)
		end := in.now.Add(usableFor + in.attempt + skew)
		p.granted = &lease{until: until, end: end, usable: usable, size: n, room: n}
		p.state = p.state.Grant(Grant{Until: until, End: end, Pods: n})
	case in.leases.room(in.now) == 0 && in.leases.open(in.now) == 0:
		p.tripped = true
		p.state.Tripped = in.server.Truncate(time.Microsecond)
		p.state.Limit, p.state.Generation = limit, in.generation
	}
}
