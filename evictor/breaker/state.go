package breaker

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
)

const (
	// maxGrants bounds the grants of a state; the API allows 128.
	maxGrants = 100
	// parts is the number of parts of the window and the time ahead of it. Grants that end in the
	// same part become one.
	parts = 90
	ahead = 30 * time.Second
)

// grant is a number of pods that may have been evicted.
type grant struct {
	// until is when the last of them is evicted, by the clock of the API server and in whole
	// microseconds, as the API stores it; zero in an approval, whose grants count for all time. end
	// is the same instant by the clock of this machine.
	until, end time.Time
	pods       int
}

// over reports whether all pods of a grant with an end were evicted before the window.
func over(end, now time.Time, window time.Duration) bool {
	return window > 0 && !end.Add(window).After(now)
}

// state is what the status of an EvictionPolicy or an EvictionApproval counts.
type state struct {
	// tripped is when the breaker tripped, by the clock of the API server; zero if it is not tripped.
	// limit and generation are those of the policy at that time.
	tripped    time.Time
	limit      int
	generation int64
	// grants are in the order of until.
	grants []grant
	// id names the write of the state. States of two replicas can be alike otherwise, because joined
	// grants have no names.
	id string
}

// equal reports whether both states have the same status, which does not include the end of a grant.
func (s *state) equal(other *state) bool {
	return equality.Semantic.DeepEqual(s.status(), other.status())
}

// empty reports whether the state counts no pods and is not tripped.
func (s *state) empty() bool { return s.tripped.IsZero() && len(s.grants) == 0 }

// pods returns the number of pods of all grants.
func (s *state) pods() int {
	pods := 0
	for _, g := range s.grants {
		pods += g.pods
	}
	return pods
}

// since returns a copy of the state without the grants before the window.
func (s *state) since(now time.Time, window time.Duration) state {
	copied := *s
	copied.grants = slices.DeleteFunc(slices.Clone(s.grants), func(g grant) bool { return over(g.end, now, window) })
	return copied
}

// add adds a grant.
func (s *state) add(g grant) {
	s.grants = append(s.grants, g)
	slices.SortStableFunc(s.grants, func(a, b grant) int { return a.until.Compare(b.until) })
}

// giveBack takes pods that were not evicted off the grant that ends at until, or off the later one
// with which it was joined.
func (s *state) giveBack(until time.Time, pods int) {
	at := slices.IndexFunc(s.grants, func(g grant) bool { return !g.until.Before(until) })
	if at < 0 {
		return
	}
	if s.grants[at].pods -= pods; s.grants[at].pods <= 0 {
		s.grants = slices.Delete(s.grants, at, at+1)
	}
}

// coalesce joins the grants that end in the same part of the window. Parts begin at fixed times: if
// grants were joined because they are close, one could be extended without end. If more than
// maxGrants are left, which another writer added, the oldest are joined.
func (s *state) coalesce(window time.Duration) {
	part := (window + ahead) / parts
	var joined []grant
	for _, g := range s.grants {
		last := len(joined) - 1
		if last >= 0 && joined[last].until.Truncate(part).Equal(g.until.Truncate(part)) {
			joined[last] = join(joined[last], g)
		} else {
			joined = append(joined, g)
		}
	}
	for len(joined) > maxGrants {
		joined[1] = join(joined[0], joined[1])
		joined = joined[1:]
	}
	s.grants = joined
}

// join returns one grant for two, of which b ends later by the clock of the API server.
func join(a, b grant) grant {
	if a.end.After(b.end) {
		b.end = a.end
	}
	b.pods += a.pods
	return b
}
