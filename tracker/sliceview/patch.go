package sliceview

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/slicepatch"
)

// limit is a device that keeps the attributes and the capacity that it published.
type limit struct {
	at      int
	problem string
}

// apply returns a slice with what patches make of its devices, and the slice itself if
// none is meant for any. It depends on the slice, those patches and their classes and on
// nothing else.
func (p *patches) apply(e *entry) (*resourcev1.ResourceSlice, []limit) {
	pool := poolOf(e.raw)
	m := &meant{p: p, e: e, scoped: p.scoped(pool), naming: p.index.HasNamed(pool)}
	switch {
	case m.scoped != nil:
		m.all = true
		for _, patch := range m.scoped.patches {
			v := e.verdict(patch)
			m.all = m.all && v == nil
			if v != never {
				m.patches, m.verdicts = append(m.patches, patch), append(m.verdicts, v)
			}
		}
	case !m.naming:
		return e.raw, nil
	}
	patched := e.raw
	var limits []limit
	for i := range e.raw.Spec.Devices {
		overlay := m.overlay(i)
		if overlay == nil {
			continue
		}
		if patched == e.raw {
			patched = WithOwnDevices(e.raw)
		}
		var err error
		patched.Spec.Devices[i], err = overlay.Apply(e.raw.Spec.Driver, &e.raw.Spec.Devices[i])
		if err != nil {
			limits = append(limits, limit{at: i, problem: err.Error()})
		}
	}
	return patched, limits
}

// meant knows which patches are meant for the devices of one slice.
type meant struct {
	p      *patches
	e      *entry
	scoped *scoped
	// patches are the scoped ones that are meant for some device, and verdicts theirs.
	patches  []*slicePatch
	verdicts []*verdict
	// all is true if each scoped patch is meant for every device.
	all    bool
	naming bool

	// list and combined are of the device before: most are patched like it.
	list, last []*slicePatch
	combined   *slicepatch.Overlay
}

// overlay returns what the patches make of the device at a position, nil for nothing.
func (m *meant) overlay(at int) *slicepatch.Overlay {
	// The patches that ask for the device by its name and are meant for it.
	var named []*slicePatch
	if m.naming {
		for _, entry := range m.p.index.Named(idAt(m.e.raw, at)) {
			if m.e.verdict(entry.Value).holds(at) {
				named = append(named, entry.Value)
			}
		}
	}
	if m.all && len(named) == 0 {
		if m.scoped.overlay == nil {
			m.scoped.overlay = combine(m.scoped.patches)
		}
		return m.scoped.overlay
	}
	m.list = m.list[:0]
	for i, patch := range m.patches {
		if m.verdicts[i].holds(at) {
			m.list = append(m.list, patch)
		}
	}
	if len(named) > 0 {
		m.list = append(m.list, named...)
		slices.SortFunc(m.list, compare)
	}
	switch {
	case len(m.list) == 0:
		return nil
	case !slices.Equal(m.list, m.last):
		m.last, m.combined = slices.Clone(m.list), combine(m.list)
	}
	return m.combined
}
