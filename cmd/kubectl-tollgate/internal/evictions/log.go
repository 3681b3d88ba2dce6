package evictions

import (
	"cmp"
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Log compares successive lists. It is not safe for concurrent use.
type Log struct {
	// Since is when the log began.
	Since time.Time

	before map[tracker.Key]Eviction
	gone   map[tracker.Source]int
}

// NewLog returns a log with Since set to now.
func NewLog(now time.Time) *Log {
	return &Log{Since: now, before: map[tracker.Key]Eviction{}, gone: map[tracker.Source]int{}}
}

// Next returns the changes since the last list: new and changed pods, and removed ones with the
// state Gone or Staying. Lives reports whether a pod exists and is not finished.
func (l *Log) Next(list []Eviction, lives func(tracker.Key) bool) []Eviction {
	var changed []Eviction
	now := make(map[tracker.Key]Eviction, len(list))
	for i := range list {
		e := &list[i]
		now[e.Key] = *e
		if before, found := l.before[e.Key]; !found || differs(&before, e) {
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
	slices.SortFunc(left, compare)
	l.before = now
	return append(left, changed...)
}

// differs reports whether a visible field of a pod changed.
func differs(a, b *Eviction) bool {
	return a.State != b.State || !a.At.Equal(b.At) || a.By != b.By || a.Hold.Reason != b.Hold.Reason || a.Hold.By != b.Hold.By ||
		author(a) != author(b)
}

func author(e *Eviction) tracker.Source {
	source := e.Because[0].Taint.Author()
	source.UID = ""
	return source
}

// Group is the progress of the evictions because of one object.
type Group struct {
	Source tracker.Source
	// Pods is the number of pods in each state. Gone counts those gone since the log began.
	Pods map[State]int
}

// total returns the number of pods, including those gone.
func (g *Group) total() int {
	sum := 0
	for _, pods := range g.Pods {
		sum += pods
	}
	return sum
}

// Groups returns the pods of the last list by the object that evicts them, the largest group
// first.
func (l *Log) Groups() []Group {
	by := map[tracker.Source]map[State]int{}
	count := func(source tracker.Source, state State, pods int) {
		if by[source] == nil {
			by[source] = map[State]int{}
		}
		by[source][state] += pods
	}
	for source, gone := range l.gone {
		count(source, Gone, gone)
	}
	for _, e := range l.before {
		count(author(&e), e.State, 1)
	}
	groups := make([]Group, 0, len(by))
	for source, pods := range by {
		groups = append(groups, Group{source, pods})
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.total(), a.total()), cmp.Compare(a.Source.Kind, b.Source.Kind), cmp.Compare(a.Source.Name, b.Source.Name))
	})
	return groups
}

// Open returns the number of pods still to leave, by state: all except Protected.
func Open(list []Eviction) map[State]int {
	open := map[State]int{}
	for i := range list {
		if list[i].State != Protected {
			open[list[i].State]++
		}
	}
	return open
}
