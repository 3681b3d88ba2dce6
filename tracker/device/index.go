package device

import (
	"slices"
	"strings"
)

// Index finds what selects a device, by name. Looking costs what is found and
// does not depend on how much else the index holds: a device can be selected in
// eight ways, by driver or not, by pool or not, by name or not. The zero Index is
// empty. It is not goroutine-safe.
type Index[T any] struct {
	buckets map[Selector][]Entry[T]
	// used counts the buckets of each set of criteria.
	used [combinations]int
	// named counts the buckets that ask for a device's name, by what else they ask
	// for.
	named map[Selector]int
}

// Entry is something with a unique name that selects devices.
type Entry[T any] struct {
	Name  string
	Value T
}

// Set puts value under a selector and a name. What was there under both before is
// replaced.
func (x *Index[T]) Set(selector Selector, name string, value T) {
	bucket := x.buckets[selector]
	at, found := find(bucket, name)
	if found {
		bucket[at].Value = value
		return
	}
	if x.buckets == nil {
		x.buckets, x.named = map[Selector][]Entry[T]{}, map[Selector]int{}
	}
	if len(bucket) == 0 {
		x.count(selector, 1)
	}
	x.buckets[selector] = slices.Insert(bucket, at, Entry[T]{Name: name, Value: value})
}

// Delete takes out what is under a selector and a name.
func (x *Index[T]) Delete(selector Selector, name string) {
	bucket := x.buckets[selector]
	at, found := find(bucket, name)
	if !found {
		return
	}
	if len(bucket) == 1 {
		delete(x.buckets, selector)
		x.count(selector, -1)
		return
	}
	x.buckets[selector] = slices.Delete(bucket, at, at+1)
}

// count counts a bucket that is new or gone.
func (x *Index[T]) count(selector Selector, buckets int) {
	x.used[selector.asks] += buckets
	if selector.asks&byName == 0 {
		return
	}
	rest := narrow(selector.id, selector.asks&^byName)
	x.named[rest] += buckets
	if x.named[rest] == 0 {
		delete(x.named, rest)
	}
}

// Match returns all that selects a device, sorted by name. What it returns holds
// until the index is changed, and must not be written to.
func (x *Index[T]) Match(id ID) []Entry[T] {
	return x.collect(id, anyCriteria)
}

// Named returns what selects a device by its name, whatever else it asks for,
// sorted by name. Together with what Scoped returns it is what Match returns.
func (x *Index[T]) Named(id ID) []Entry[T] {
	return x.collect(id, criteriaWithName)
}

// HasNamed reports whether anything may select devices of a pool by their names.
func (x *Index[T]) HasNamed(pool ID) bool {
	for asks := range byName {
		if x.used[asks|byName] > 0 && x.named[narrow(pool, asks)] > 0 {
			return true
		}
	}
	return false
}

// collect returns what selects a device with one of some sets of criteria, sorted
// by name.
func (x *Index[T]) collect(id ID, of criteriaSets) []Entry[T] {
	var found []Entry[T]
	several := false
	for asks := range criteria(combinations) {
		if x.used[asks] == 0 || of&(1<<asks) == 0 {
			continue
		}
		switch bucket := x.buckets[narrow(id, asks)]; {
		case found == nil:
			// Nearly always it is the only one. It must not be appended to.
			found = slices.Clip(bucket)
		case len(bucket) > 0:
			found, several = append(found, bucket...), true
		}
	}
	if several {
		slices.SortFunc(found, func(a, b Entry[T]) int { return strings.Compare(a.Name, b.Name) })
	}
	return found
}

func find[T any](bucket []Entry[T], name string) (int, bool) {
	return slices.BinarySearchFunc(bucket, name, func(e Entry[T], name string) int { return strings.Compare(e.Name, name) })
}
