package tolerations

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// index finds the policies that a toleration may come under, by key and value.
// It may name one too many, never one too few. Policies are positions in
// Set.policies; every list is ascending and holds a position once.
type index struct {
	exact    map[string]*group // guards of one key
	prefixed map[string]*group // guards of prefix/*, by prefix
	starred  group             // guards of *
	loose    []int             // guards of patterns that are none of these
	every    group             // all of them, for tolerations without a key
}

// group holds the policies whose guards have a key, or a pattern, in common.
type group struct {
	all      []int
	anyValue []int
	byValue  map[string][]int
}

func newIndex() index {
	return index{exact: map[string]*group{}, prefixed: map[string]*group{}}
}

// add files the guard of the policy at position. Positions must not descend.
func (x *index) add(position int, g *guard) {
	x.every.add(position, g.values)
	prefix, rest, slashed := strings.Cut(g.key, "/")
	switch {
	case !g.open:
		groupOf(x.exact, g.key).add(position, g.values)
	case g.key == "":
		x.starred.add(position, g.values)
	case slashed && rest == "":
		groupOf(x.prefixed, prefix).add(position, g.values)
	default:
		x.loose = appendOnce(x.loose, position)
	}
}

func groupOf(groups map[string]*group, key string) *group {
	if groups[key] == nil {
		groups[key] = &group{}
	}
	return groups[key]
}

func (g *group) add(position int, values []string) {
	g.all = appendOnce(g.all, position)
	if len(values) == 0 {
		g.anyValue = appendOnce(g.anyValue, position)
	}
	for _, value := range values {
		if g.byValue == nil {
			g.byValue = map[string][]int{}
		}
		g.byValue[value] = appendOnce(g.byValue[value], position)
	}
}

func appendOnce(positions []int, position int) []int {
	if n := len(positions); n > 0 && positions[n-1] == position {
		return positions
	}
	return append(positions, position)
}

// clip gives back what the lists have over.
func (x *index) clip() {
	x.loose = slices.Clip(x.loose)
	x.every.clip()
	x.starred.clip()
	for _, groups := range []map[string]*group{x.exact, x.prefixed} {
		for _, g := range groups {
			g.clip()
		}
	}
}

func (g *group) clip() {
	g.all, g.anyValue = slices.Clip(g.all), slices.Clip(g.anyValue)
	for value, positions := range g.byValue {
		g.byValue[value] = slices.Clip(positions)
	}
}

// candidates returns the policies that a may come under.
func (x *index) candidates(a *ask) cursor {
	var c cursor
	if a.key == "" {
		c.addGroup(&x.every, a)
		return c
	}
	if g, ok := x.exact[a.key]; ok {
		c.addGroup(g, a)
	}
	// A taint key holds one slash at most, so the first one ends the prefix.
	if prefix, _, slashed := strings.Cut(a.key, "/"); slashed {
		if g, ok := x.prefixed[prefix]; ok {
			c.addGroup(g, a)
		}
	}
	if !systemKey(a.key) {
		c.addGroup(&x.starred, a)
	}
	c.add(x.loose)
	return c
}

// cursor walks several ascending lists as one, without repeats. It is a value
// of fixed size, so that walking allocates nothing.
type cursor struct {
	lists [7][]int // two for each of at most three groups, and the loose ones
	used  int
}

func (c *cursor) addGroup(g *group, a *ask) {
	if a.operator != corev1.TolerationOpEqual {
		c.add(g.all)
		return
	}
	c.add(g.anyValue)
	c.add(g.byValue[a.value])
}

func (c *cursor) add(positions []int) {
	if len(positions) > 0 {
		c.lists[c.used] = positions
		c.used++
	}
}

// next returns the next position, or false after the last.
func (c *cursor) next() (int, bool) {
	lowest, found := 0, false
	for _, positions := range c.lists[:c.used] {
		if len(positions) > 0 && (!found || positions[0] < lowest) {
			lowest, found = positions[0], true
		}
	}
	for i, positions := range c.lists[:c.used] {
		if len(positions) > 0 && positions[0] == lowest {
			c.lists[i] = positions[1:]
		}
	}
	return lowest, found
}
