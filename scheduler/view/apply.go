package view

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/slicepatch"
)

// Apply returns the slice with the patches. Filters see what the driver published:
// rules have only added taints to that, which filters do not see.
func (s *set) Apply(slice *resourcev1.ResourceSlice, earlier Result) Result {
	found := s.recall(slice, earlier)
	pool := s.inPool(slice, found)
	var (
		devices        []resourcev1.Device
		matching, last []*patchesPatch
		overlay        *slicepatch.Overlay
	)
	for i := range slice.Spec.Devices {
		matching = s.matching(matching[:0], slice, i, pool, found)
		if len(matching) == 0 {
			continue
		}
		// Neighbours mostly have the same patches.
		if overlay == nil || !slices.Equal(matching, last) {
			overlay, last = combine(matching), slices.Clone(matching)
		}
		if devices == nil {
			devices = slices.Clone(slice.Spec.Devices)
		}
		// A device that would be beyond what the API allows keeps what it published, and
		// Tollgate reports it.
		devices[i], _ = overlay.Apply(slice.Spec.Driver, &slice.Spec.Devices[i])
	}
	found.devices = nil
	if devices == nil {
		return Result{Slice: slice, Memory: found}
	}
	patched := *slice
	patched.Spec.Devices = devices
	return Result{Slice: &patched, Memory: found}
}

// inPool returns the patches that ask for no device by name and are meant for one of the
// patchesSlice at least, in the order of Compare.
func (s *set) inPool(slice *resourcev1.ResourceSlice, found *memory) []*patchesPatch {
	var pool []*patchesPatch
	s.each(slice, "", func(p *patchesPatch) {
		if found.ask(p) != none {
			pool = append(pool, p)
		}
	})
	slices.SortFunc(pool, compare)
	return pool
}

// matching appends the patches that are meant for a device, in the order of Compare.
func (s *set) matching(matching []*patchesPatch, slice *resourcev1.ResourceSlice, i int, pool []*patchesPatch, found *memory) []*patchesPatch {
	for _, p := range pool {
		if found.ask(p).has(i) {
			matching = append(matching, p)
		}
	}
	if !s.naming {
		return matching
	}
	before := len(matching)
	s.each(slice, slice.Spec.Devices[i].Name, func(p *patchesPatch) {
		if found.ask(p).has(i) {
			matching = append(matching, p)
		}
	})
	if len(matching) > before {
		slices.SortFunc(matching, compare)
	}
	return matching
}

// each calls for the patches that ask for the slice's driver and pool or for any, and for
// this device; for no device by name if that is empty.
func (s *set) each(slice *resourcev1.ResourceSlice, device string, call func(*patchesPatch)) {
	for _, driver := range []string{"", slice.Spec.Driver} {
		for _, pool := range []string{"", slice.Spec.Pool.Name} {
			for _, p := range s.named[names{driver: driver, pool: pool, device: device}] {
				call(p)
			}
		}
	}
}

func compare(a, b *patchesPatch) int { return slicepatch.Compare(a.Patch, b.Patch) }

func combine(matching []*patchesPatch) *slicepatch.Overlay {
	patches := make([]*slicepatch.Patch, len(matching))
	for i, p := range matching {
		patches[i] = p.Patch
	}
	return slicepatch.Combine(patches)
}
