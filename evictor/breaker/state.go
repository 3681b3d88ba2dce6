package breaker

import (
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

const (
	// mostGrants bounds the grants of a state; the API takes 128.
	mostGrants = 100
	// parts is into how many parts the window is divided, with what lies ahead of it.
	// Grants that end in the same part are as good as one.
	parts = 90
	ahead = 30 * time.Second
)

// Grant is leave for some pods to go.
type Grant struct {
	// Until is when the last of them may have gone, by the clock of the API server and
	// in whole microseconds, as the API keeps it. End is the same instant by the clock
	// of this machine, which nobody sets: within a term it alone counts.
	Until, End time.Time
	Pods       int
}

// State is what a breaker has counted, as it stands in the status of its policy. It is
// a value: its methods return another and leave it as it is.
type State struct {
	// Tripped is when the breaker began to hold, by the clock of the API server; zero
	// while it does not. Limit and Generation are by what it tripped.
	Tripped    time.Time
	Limit      int
	Generation int64
	// Grants are in the order of Until, which differs from one to the next.
	Grants []Grant
	// ID is of the write that brought the state about. States of two replicas may look
	// alike otherwise: grants that are joined have nothing of their own.
	ID string
}

// Read returns the state that stands in a status, nil for none, at the time server of
// the API server, which is local on this machine.
func Read(status *v1alpha1.EvictionBreakerStatus, server, local time.Time) State {
	var s State
	if status == nil {
		return s
	}
	s.Generation, s.Limit, s.ID = status.Generation, int(status.Limit), status.WriteID
	if status.Tripped != nil {
		s.Tripped = status.Tripped.Time
	}
	for i := range status.Granted {
		g := &status.Granted[i]
		if g.Pods > 0 { // Else somebody else wrote it, and it lets nobody go.
			s = s.Grant(Grant{Until: g.Until.Time, End: local.Add(g.Until.Sub(server)), Pods: int(g.Pods)})
		}
	}
	return s
}

// Status returns the state as it stands in a status; nil for the zero State.
func (s State) Status() *v1alpha1.EvictionBreakerStatus {
	if s.Equal(State{}) {
		return nil
	}
	status := &v1alpha1.EvictionBreakerStatus{
		WriteID: s.ID, Generation: s.Generation, Limit: int32(min(s.Limit, math.MaxInt32)), //nolint:gosec // It is bounded.
	}
	if !s.Tripped.IsZero() {
		status.Tripped = new(metav1.NewMicroTime(s.Tripped))
	}
	for _, g := range s.Grants {
		status.Granted = append(status.Granted, v1alpha1.BreakerGrant{
			Until: metav1.NewMicroTime(g.Until), Pods: int32(min(g.Pods, math.MaxInt32)), //nolint:gosec // It is bounded.
		})
	}
	return status
}

// Equal reports whether both states stand in a status alike. When grants end on this
// machine does not stand there.
func (s State) Equal(other State) bool {
	return s.Tripped.Equal(other.Tripped) && s.Limit == other.Limit && s.Generation == other.Generation &&
		s.ID == other.ID &&
		slices.EqualFunc(s.Grants, other.Grants, func(a, b Grant) bool { return a.Until.Equal(b.Until) && a.Pods == b.Pods })
}

// Gone returns how many pods may have gone at the time now of this machine or within
// the window before: all that were granted and not given back.
func (s State) Gone(now time.Time, window time.Duration) int {
	gone := 0
	for _, g := range s.Grants {
		if !over(g, now, window) {
			gone += g.Pods
		}
	}
	return gone
}

// written returns the state as the write with an ID brings it about: a state that says
// nothing is the zero State.
func (s State) written(id string) State {
	s.ID = ""
	if !s.Equal(State{}) {
		s.ID = id
	}
	return s
}

// over reports whether all pods of a grant went before the window.
func over(g Grant, now time.Time, window time.Duration) bool { return !g.End.Add(window).After(now) }

// Since returns the state without the grants that the window has left behind.
func (s State) Since(now time.Time, window time.Duration) State {
	return s.keep(func(g Grant) bool { return !over(g, now, window) })
}

// keep returns the state with the grants that are kept.
func (s State) keep(kept func(Grant) bool) State {
	s.Grants = slices.DeleteFunc(slices.Clone(s.Grants), func(g Grant) bool { return !kept(g) })
	return s
}

// Grant returns the state with one more grant.
func (s State) Grant(g Grant) State {
	s.Grants = slices.Clone(s.Grants)
	at, found := s.find(g.Until)
	if !found {
		s.Grants = slices.Insert(s.Grants, at, g)
		return s
	}
	s.Grants[at] = join(s.Grants[at], g)
	return s
}

// Return returns the state with some pods less of the grant that was made until then,
// because they have certainly not gone. If it was joined with later ones they are
// taken from there.
func (s State) Return(until time.Time, pods int) State {
	at, _ := s.find(until)
	if at == len(s.Grants) {
		return s
	}
	s.Grants = slices.Clone(s.Grants)
	if s.Grants[at].Pods -= pods; s.Grants[at].Pods <= 0 {
		s.Grants = slices.Delete(s.Grants, at, at+1)
	}
	return s
}

// Coalesce returns the state with few enough grants. Those that end in the same part of
// the window are joined, and count as long as the last of them. Parts lie where they
// lie: if neighbours were joined because they are close, a grant could go on for ever.
func (s State) Coalesce(window time.Duration) State {
	part := (window + ahead) / parts
	var joined []Grant
	for _, g := range s.Grants {
		last := len(joined) - 1
		if last >= 0 && joined[last].Until.Truncate(part).Equal(g.Until.Truncate(part)) {
			joined[last] = join(joined[last], g)
		} else {
			joined = append(joined, g)
		}
	}
	s.Grants = joined
	// More are there only if somebody else wrote them.
	for len(s.Grants) > mostGrants {
		at := s.closest()
		s.Grants[at] = join(s.Grants[at], s.Grants[at+1])
		s.Grants = slices.Delete(s.Grants, at+1, at+2)
	}
	return s
}

// closest returns the first of the two neighbours that end closest to each other.
func (s State) closest() int {
	closest, gap := 0, time.Duration(math.MaxInt64)
	for i := 1; i < len(s.Grants); i++ {
		if d := s.Grants[i].Until.Sub(s.Grants[i-1].Until); d < gap {
			closest, gap = i-1, d
		}
	}
	return closest
}

// find returns where the grant stands that ends then, or the first that ends later.
func (s State) find(until time.Time) (at int, found bool) {
	return slices.BinarySearchFunc(s.Grants, until, func(g Grant, t time.Time) int { return g.Until.Compare(t) })
}

// join returns one grant for two. It counts as long as the longer of them.
func join(a, b Grant) Grant {
	if b.Until.After(a.Until) {
		a.Until = b.Until
	}
	if b.End.After(a.End) {
		a.End = b.End
	}
	a.Pods += b.Pods
	return a
}
