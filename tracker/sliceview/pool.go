package sliceview

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
)

// selected returns the slices of the pool with a device of the name that a selector
// asks for, or all of them. It must not be written to.
func (p *pool) selected(selector selector) []*entry {
	name, named := selector.Name()
	if !named {
		return p.entries
	}
	var found []*entry
	if p.devices == nil {
		for i, e := range p.entries {
			switch {
			case !slices.ContainsFunc(e.raw.Spec.Devices, func(d resourcev1.Device) bool { return d.Name == name }):
			case found == nil:
				found = p.entries[i : i+1 : i+1] // Mostly it is the only one.
			default:
				found = append(found, e)
			}
		}
	} else if first, ok := p.devices[name]; ok {
		found = append(append(found, first), p.others[name]...)
	}
	return found
}

func (p *pool) addDevices(e *entry) {
	for i := range e.raw.Spec.Devices {
		name := e.raw.Spec.Devices[i].Name
		switch first, found := p.devices[name]; {
		case !found:
			p.devices[name] = e
		case first != e && !slices.Contains(p.others[name], e):
			p.others[name] = append(p.others[name], e)
		}
	}
}

func (p *pool) dropDevices(e *entry) {
	if p.devices == nil {
		return
	}
	for i := range e.raw.Spec.Devices {
		name := e.raw.Spec.Devices[i].Name
		others := p.others[name]
		switch {
		case p.devices[name] != e:
			others = slices.DeleteFunc(others, func(other *entry) bool { return other == e })
		case len(others) == 0:
			delete(p.devices, name)
		default:
			p.devices[name] = others[0]
			others = slices.Delete(others, 0, 1)
		}
		if len(others) > 0 {
			p.others[name] = others
		} else {
			delete(p.others, name)
		}
	}
}
