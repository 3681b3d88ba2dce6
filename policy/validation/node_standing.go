package validation

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// pair is what identifies a taint among those of a node.
type pair struct {
	key    string
	effect corev1.TaintEffect
}

func pairOf(t *corev1.Taint) pair { return pair{t.Key, t.Effect} }

// twin returns the pair that the node lifecycle controller puts in the place of p
// when a node that was not ready becomes unreachable, and the other way round.
func (p pair) twin() (pair, bool) {
	if p.effect != corev1.TaintEffectNoExecute {
		return pair{}, false
	}
	switch p.key {
	case corev1.TaintNodeNotReady:
		return pair{corev1.TaintNodeUnreachable, p.effect}, true
	case corev1.TaintNodeUnreachable:
		return pair{corev1.TaintNodeNotReady, p.effect}, true
	default:
		return pair{}, false
	}
}

// stamp is a taint as the API server stores it: its time, if any, in whole seconds.
type stamp struct {
	pair

	value   string
	seconds int64
	timed   bool
}

func stampOf(t *corev1.Taint) stamp {
	s := stamp{pair: pairOf(t), value: t.Value}
	if at, ok := timeOf(t); ok {
		s.seconds, s.timed = at.Unix(), true
	}
	return s
}

// timeOf returns the time of t in whole seconds, which is all that the API stores,
// and whether it has one. The zero time is none: it is written as null.
func timeOf(t *corev1.Taint) (time.Time, bool) {
	if t.TimeAdded.IsZero() {
		return time.Time{}, false
	}
	return t.TimeAdded.Truncate(time.Second), true
}

// standing is what stood on the node before the request.
type standing struct {
	stamps map[stamp]struct{}
	// since holds the earliest time of each pair that has one.
	since map[pair]time.Time
	count map[pair]int
}

func standingOf(old []corev1.Taint) standing {
	s := standing{
		stamps: make(map[stamp]struct{}, len(old)),
		since:  make(map[pair]time.Time, len(old)),
		count:  make(map[pair]int, len(old)),
	}
	for i := range old {
		t := &old[i]
		p := pairOf(t)
		s.stamps[stampOf(t)] = struct{}{}
		s.count[p]++
		if at, ok := timeOf(t); ok && (s.since[p].IsZero() || at.Before(s.since[p])) {
			s.since[p] = at
		}
	}
	return s
}

// has reports whether t stood there as it is.
func (s standing) has(t *corev1.Taint) bool {
	_, ok := s.stamps[stampOf(t)]
	return ok
}

// sinceTwin returns the time of the twin of p.
func (s standing) sinceTwin(p pair) time.Time {
	if twin, ok := p.twin(); ok {
		return s.since[twin]
	}
	return time.Time{}
}

// unchanged reports whether taints are those of old, in the same order, which is
// what nearly every update of a node brings.
func unchanged(taints, old []corev1.Taint) bool {
	if len(taints) != len(old) {
		return false
	}
	for i := range taints {
		if stampOf(&taints[i]) != stampOf(&old[i]) {
			return false
		}
	}
	return true
}

// earliest returns the earliest of times that are set, or the zero time.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, at := range times {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
