package device

import "iter"

// Table is a map of maps, none of which is empty.
type Table[R, C comparable, V any] map[R]map[C]V

// Set puts a value in the place of the one that is under both keys.
func (t Table[R, C, V]) Set(row R, column C, value V) {
	if t[row] == nil {
		t[row] = map[C]V{}
	}
	t[row][column] = value
}

// Delete takes out the value that is under both keys.
func (t Table[R, C, V]) Delete(row R, column C) {
	delete(t[row], column)
	if len(t[row]) == 0 {
		delete(t, row)
	}
}

// Pools holds a value for each pool, by driver and name.
type Pools[T any] = Table[string, string, T]

// Selected yields the pools of which a selector may select devices, as IDs without the name
// of a device. It costs what it yields.
func Selected[T any](pools Pools[T], selector Selector) iter.Seq2[ID, T] {
	return func(yield func(ID, T) bool) {
		inDriver := func(driver string) bool {
			if pool, one := selector.Pool(); one {
				value, found := pools[driver][pool]
				return !found || yield(ID{Driver: driver, Pool: pool}, value)
			}
			for pool, value := range pools[driver] {
				if !yield(ID{Driver: driver, Pool: pool}, value) {
					return false
				}
			}
			return true
		}
		if driver, one := selector.Driver(); one {
			inDriver(driver)
			return
		}
		for driver := range pools {
			if !inDriver(driver) {
				return
			}
		}
	}
}
