package device

import "iter"

// Pools holds something for each pool, by driver and name.
type Pools[T any] map[string]map[string]T

// Set puts value in the place of what there is for a pool.
func (p Pools[T]) Set(driver, pool string, value T) {
	if p[driver] == nil {
		p[driver] = map[string]T{}
	}
	p[driver][pool] = value
}

// Delete takes out what there is for a pool.
func (p Pools[T]) Delete(driver, pool string) {
	delete(p[driver], pool)
	if len(p[driver]) == 0 {
		delete(p, driver)
	}
}

// Selected yields the pools of which a selector may select devices, as IDs without the name
// of a device. It costs what it yields.
func (p Pools[T]) Selected(selector Selector) iter.Seq2[ID, T] {
	return func(yield func(ID, T) bool) {
		inDriver := func(driver string) bool {
			if pool, one := selector.Pool(); one {
				value, found := p[driver][pool]
				return !found || yield(ID{Driver: driver, Pool: pool}, value)
			}
			for pool, value := range p[driver] {
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
		for driver := range p {
			if !inDriver(driver) {
				return
			}
		}
	}
}
