package selector

import (
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Index finds the policies whose selectors a toleration may come under, by target,
// key and value: it may name one too many, never one too few. Policies are positions
// in a list of the caller's. An index does not change and is safe for concurrent use.
type Index map[place]*group

// place is where selectors of a target are found: at a key, at a prefix with its slash, or at
// one of the places below, none of which is a key.
type place struct {
	target v1alpha1.TaintTarget
	key    string
}

const (
	every   = ""  // all selectors, for tolerations without a key
	starred = "*" // selectors of *
	loose   = "?" // selectors of patterns that are neither * nor prefix/*
)

// group holds the policies with selectors at a place. Every list in it is ascending and holds a
// position once.
type group struct {
	all      []int
	anyValue []int
	byValue  map[string][]int
}

// IndexOf returns the index of the policies of a list, of which selectors returns the selectors of
// one.
func IndexOf[P any](policies []P, selectors func(P) []Selector) Index {
	x := Index{}
	for position, p := range policies {
		list := selectors(p)
		for i := range list {
			x.add(position, &list[i])
		}
	}
	return x
}

// add files a selector of the policy at position. Positions must not descend.
func (x Index) add(position int, s *Selector) {
	key := s.key
	switch {
	case s.open && key == "":
		key = starred
	case s.open && strings.Index(key, "/") != len(key)-1:
		key = loose
	}
	for _, at := range []place{{s.target, every}, {s.target, key}} {
		if x[at] == nil {
			x[at] = &group{byValue: map[string][]int{}}
		}
		x[at].add(position, s.values)
	}
}

func (g *group) add(position int, values []string) {
	g.all = appendOnce(g.all, position)
	if len(values) == 0 {
		g.anyValue = appendOnce(g.anyValue, position)
	}
	for _, value := range values {
		g.byValue[value] = appendOnce(g.byValue[value], position)
	}
}

func appendOnce(positions []int, position int) []int {
	if n := len(positions); n > 0 && positions[n-1] == position {
		return positions
	}
	return append(positions, position)
}

// Candidates yields the policies that t may come under, ascending.
func (x Index) Candidates(t *Toleration) iter.Seq[int] {
	return func(yield func(int) bool) { x.Each(t, yield) }
}

// Each is Candidates as a call, until yield returns false. Unlike an iterator that is not inlined, it
// never allocates t.
func (x Index) Each(t *Toleration, yield func(int) bool) {
	var lists [8][]int // two for each of at most four places
	lists[0], lists[1] = x.at(t.Key, t)
	if t.Key != every {
		// A taint key holds one slash at most, so the first one ends the prefix.
		if slash := strings.IndexByte(t.Key, '/'); slash >= 0 {
			lists[2], lists[3] = x.at(t.Key[:slash+1], t)
		}
		if t.Target == v1alpha1.TaintTargetDevice || !System(t.Key) {
			lists[4], lists[5] = x.at(starred, t)
		}
		lists[6], lists[7] = x.at(loose, t)
	}
	merge(lists[:], yield)
}

// at returns the policies at a place that t may come under, in two lists.
func (x Index) at(key string, t *Toleration) (some, more []int) {
	g := x[place{TargetOf(t.Target), key}]
	switch {
	case g == nil:
		return nil, nil
	case t.Operator == corev1.TolerationOpEqual:
		return g.anyValue, g.byValue[t.Value]
	default:
		return g.all, nil
	}
}

// merge yields the positions of ascending lists as of one, without repeats.
func merge(lists [][]int, yield func(int) bool) {
	for {
		lowest := -1
		for _, positions := range lists {
			if len(positions) > 0 && (lowest < 0 || positions[0] < lowest) {
				lowest = positions[0]
			}
		}
		if lowest < 0 || !yield(lowest) {
			return
		}
		for i, positions := range lists {
			if len(positions) > 0 && positions[0] == lowest {
				lists[i] = positions[1:]
			}
		}
	}
}
