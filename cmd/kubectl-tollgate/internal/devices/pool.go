package devices

import (
	"cmp"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
)

// poolName is the key of a pool. Two drivers may use one name for a pool (K09).
type poolName struct{ driver, pool string }

func comparePools(a, b poolName) int {
	return cmp.Or(cmp.Compare(a.driver, b.driver), cmp.Compare(a.pool, b.pool))
}

// pool has the slices of the newest generation of a pool, by name.
type pool struct {
	generation int64
	slices     map[string]*resourcev1.ResourceSlice
}

// add adds a slice unless its generation is older, and returns the names of the slices that it
// replaces.
func (p *pool) add(slice *resourcev1.ResourceSlice) (dropped []string, taken bool) {
	generation := slice.Spec.Pool.Generation
	switch {
	case len(p.slices) > 0 && generation < p.generation:
		return nil, false
	case generation > p.generation:
		dropped = slices.Collect(maps.Keys(p.slices))
		clear(p.slices)
	}
	p.generation = generation
	p.slices[slice.Name] = slice
	return dropped, true
}

// expected is the declared number of slices of the generation.
func (p *pool) expected() int64 {
	first := slices.Min(slices.Collect(maps.Keys(p.slices)))
	return p.slices[first].Spec.Pool.ResourceSliceCount
}

// complete reports whether all slices of the generation are present (DE-17).
func (p *pool) complete() bool {
	return int64(len(p.slices)) == p.expected()
}

func (p *pool) publishes(name string) bool {
	for _, slice := range p.slices {
		if hasDevice(slice, name) {
			return true
		}
	}
	return false
}

func hasDevice(slice *resourcev1.ResourceSlice, name string) bool {
	for i := range slice.Spec.Devices {
		if slice.Spec.Devices[i].Name == name {
			return true
		}
	}
	return false
}
