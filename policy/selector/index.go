package selector

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Index finds the policies whose selectors a toleration may come under, by target,
// key and value: it may name one too many, never one too few. Policies are positions
// in a list of the caller's. An index must be complete before its first use; then it
// does not change and is safe for concurrent use.
type Index struct {
	nodes, devices keys
}

// keys is an index of the selectors of one target. Every list in it is ascending and
// holds a position once.
type keys struct {
	exact    map[string]*group // selectors of one key
	prefixed map[string]*group // selectors of prefix/*, by prefix
	starred  group             // selectors of *
	loose    []int             // selectors of patterns that are none of these
	every    group             // all of them, for tolerations without a key
}

// group holds the policies whose selectors have a key, or a pattern, in common.
type group struct {
	all      []int
	anyValue []int
	byValue  map[string][]int
}

// IndexOf returns the index of the policies of a list, of which selectors returns the selectors of
// one.
func IndexOf[P any](policies []P, selectors func(P) []Selector) Index {
	var x Index
	for position, p := range policies {
		list := selectors(p)
		for i := range list {
			x.Add(position, &list[i])
		}
	}
	x.Clip()
	return x
}

// Add files a selector of the policy at position. Positions must not descend.
func (x *Index) Add(position int, s *Selector) {
	if s.target == v1alpha1.TaintTargetDevice {
		x.devices.add(position, s)
	} else {
		x.nodes.add(position, s)
	}
}

// Clip frees the unused room of the lists. It is for after the last Add.
func (x *Index) Clip() {
	x.nodes.clip()
	x.devices.clip()
}

// Candidates returns the policies that t may come under.
func (x *Index) Candidates(t *Toleration) Cursor {
	if t.Target == v1alpha1.TaintTargetDevice {
		return x.devices.candidates(t, true)
	}
	return x.nodes.candidates(t, !System(t.Key))
}

func (x *keys) add(position int, s *Selector) {
	x.every.add(position, s.values)
	prefix, rest, slashed := strings.Cut(s.key, "/")
	switch {
	case !s.open:
		groupOf(&x.exact, s.key).add(position, s.values)
	case s.key == "":
		x.starred.add(position, s.values)
	case slashed && rest == "":
		groupOf(&x.prefixed, prefix).add(position, s.values)
	default:
		x.loose = appendOnce(x.loose, position)
	}
}

func groupOf(groups *map[string]*group, key string) *group {
	g := (*groups)[key]
	if g == nil {
		g = &group{}
		if *groups == nil {
			*groups = map[string]*group{}
		}
		(*groups)[key] = g
	}
	return g
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

func (x *keys) clip() {
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

func (x *keys) candidates(t *Toleration, starred bool) Cursor {
	var c Cursor
	if t.Key == "" {
		c.addGroup(&x.every, t)
		return c
	}
	if g, ok := x.exact[t.Key]; ok {
		c.addGroup(g, t)
	}
	// A taint key holds one slash at most, so the first one ends the prefix.
	if prefix, _, slashed := strings.Cut(t.Key, "/"); slashed {
		if g, ok := x.prefixed[prefix]; ok {
			c.addGroup(g, t)
		}
	}
	if starred {
		c.addGroup(&x.starred, t)
	}
	c.add(x.loose)
	return c
}

// Cursor walks several ascending lists as one, without repeats. It is a value of
// fixed size, so that walking allocates nothing.
type Cursor struct {
	lists [7][]int // two for each of at most three groups, and the loose ones
	used  int
}

func (c *Cursor) addGroup(g *group, t *Toleration) {
	if t.Operator != corev1.TolerationOpEqual {
		c.add(g.all)
		return
	}
	c.add(g.anyValue)
	c.add(g.byValue[t.Value])
}

func (c *Cursor) add(positions []int) {
	if len(positions) > 0 {
		c.lists[c.used] = positions
		c.used++
	}
}

// Next returns the next position, or false after the last.
func (c *Cursor) Next() (int, bool) {
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
