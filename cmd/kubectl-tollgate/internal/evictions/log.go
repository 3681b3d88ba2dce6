package evictions

import (
	"cmp"
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/tracker"
)

// What became of a pod that does not have to leave any more, beside the states.
const (
	// Gone is a pod that is deleted, or over.
	Gone State = "Gone"
	// Staying is a pod that may stay: the taint is gone, or is tolerated.
	Staying State = "Staying"
)

// Log follows a list through time. It is not goroutine-safe.
type Log struct {
	// Since is when it began.
	Since time.Time

	before map[tracker.Key]Eviction
	gone   map[tracker.Source]int
}

// NewLog returns a log that begins now.
func NewLog(now time.Time) *Log {
	return &Log{Since: now, before: map[tracker.Key]Eviction{}, gone: map[tracker.Source]int{}}
}

// Next takes in the list as it is, and returns what differs from the one before: pods
// that are new, that changed, and, with one of the states above, those that are not in the
// list any more. Lives reports whether a pod is there and is not over.
func (l *Log) Next(list []Eviction, lives func(tracker.Key) bool) []Eviction {
	var changed []Eviction
	now := make(map[tracker.Key]Eviction, len(list))
	for i := range list {
		e := &list[i]
		now[e.Key] = *e
		if before, known := l.before[e.Key]; !known || differs(&before, e) {
			changed = append(changed, *e)
		}
	}
	var left []Eviction
	for key, e := range l.before {
		if _, still := now[key]; still {
			continue
		}
		e.State, e.Hold = Staying, Hold{}
		if !lives(key) {
			e.State = Gone
			l.gone[author(&e)]++
		}
		left = append(left, e)
	}
	slices.SortFunc(left, func(a, b Eviction) int { return compare(&a, &b) })
	l.before = now
	return append(left, changed...)
}

// differs reports whether there is something new to be said of a pod.
func differs(a, b *Eviction) bool {
	return a.State != b.State || !a.At.Equal(b.At) || a.By != b.By || a.Hold.Reason != b.Hold.Reason || a.Hold.By != b.Hold.By ||
		author(a) != author(b)
}

func author(e *Eviction) tracker.Source {
	source := e.Because[0].Taint.Author()
	source.UID = ""
	return source
}

// Group is how far the evictions are because of one object.
type Group struct {
	Source tracker.Source
	// Gone is how many pods have gone since the log began, and Pods how many are in each
	// state.
	Gone int
	Pods map[State]int
}

// total returns how many pods there are and were.
func (g *Group) total() int {
	sum := g.Gone
	for _, pods := range g.Pods {
		sum += pods
	}
	return sum
}

// Groups returns the pods of the last list by what makes them leave, the largest first.
func (l *Log) Groups() []Group {
	by := map[tracker.Source]*Group{}
	of := func(source tracker.Source) *Group {
		if by[source] == nil {
			by[source] = &Group{Source: source, Gone: l.gone[source], Pods: map[State]int{}}
		}
		return by[source]
	}
	for source := range l.gone {
		of(source)
	}
	for _, e := range l.before {
		of(author(&e)).Pods[e.State]++
	}
	groups := make([]Group, 0, len(by))
	for _, g := range by {
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.total(), a.total()), cmp.Compare(a.Source.Kind, b.Source.Kind), cmp.Compare(a.Source.Name, b.Source.Name))
	})
	return groups
}

// Open returns how many pods of a list are still to leave, by state: all but those that
// are protected, which stay.
func Open(list []Eviction) map[State]int {
	open := map[State]int{}
	for i := range list {
		if list[i].State != Protected {
			open[list[i].State]++
		}
	}
	return open
}
