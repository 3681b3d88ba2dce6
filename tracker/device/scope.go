package device

// Scope stands for everything in an index that selects a pool as a whole. Pools
// of the same scope are selected by the same entries, so that what follows from
// those can be worked out once for all of them: a pool that nothing singles out
// has the scope of its driver, or of all devices. Scopes are comparable, and hold
// until an entry that asks for no device name is set or deleted.
type Scope struct {
	// id has the names that an entry of the scope asks for.
	id ID
	// sets are those by which something selects the pool. They keep apart a name
	// that is not asked for and one that is asked for and empty.
	sets criteriaSets
}

// ScopeOf returns the scope of a pool.
func (x *Index[T]) ScopeOf(pool ID) Scope {
	var scope Scope
	var asked criteria
	for asks := range byName {
		if x.used[asks] == 0 || len(x.buckets[narrow(pool, asks)]) == 0 {
			continue
		}
		scope.sets |= 1 << asks
		asked |= asks
	}
	scope.id = narrow(pool, asked).id
	return scope
}

// Empty reports whether nothing selects the pool as a whole.
func (s Scope) Empty() bool {
	return s.sets == 0
}

// Scoped returns what selects every device of the pools of a scope, sorted by
// name.
func (x *Index[T]) Scoped(scope Scope) []Entry[T] {
	return x.collect(scope.id, scope.sets)
}
