package sliceview

import (
	"slices"
)

func (p *pool) add(e *entry) {
	e.pool, e.at = p, len(p.entries)
	p.entries = append(p.entries, e)
	switch {
	case p.devices != nil:
		p.addDevices(e)
	case len(p.entries) > searched:
		p.devices = map[string]*entry{}
		for _, e := range p.entries {
			p.addDevices(e)
		}
	}
}

func (p *pool) drop(e *entry) {
	if p.devices != nil {
		p.dropDevices(e)
	}
	last := len(p.entries) - 1
	moved := p.entries[last]
	p.entries[e.at], moved.at = moved, e.at
	p.entries[last] = nil
	p.entries = p.entries[:last]
}

// selected yields the slices of the pool with a device of the name that a selector
// asks for, or all of them.
func (p *pool) selected(selector selector, yield func(*entry) bool) bool {
	name, named := selector.Name()
	switch {
	case !named:
		return yieldAll(p.entries, yield)
	case p.devices == nil:
		for _, e := range p.entries {
			if e.has(name) && !yield(e) {
				return false
			}
		}
		return true
	}
	first, found := p.devices[name]
	return !found || yield(first) && yieldAll(p.others[name], yield)
}

func yieldAll(entries []*entry, yield func(*entry) bool) bool {
	for _, e := range entries {
		if !yield(e) {
			return false
		}
	}
	return true
}

func (e *entry) has(name string) bool {
	for i := range e.raw.Spec.Devices {
		if e.raw.Spec.Devices[i].Name == name {
			return true
		}
	}
	return false
}

func (p *pool) addDevices(e *entry) {
	for i := range e.raw.Spec.Devices {
		name := e.raw.Spec.Devices[i].Name
		switch first, found := p.devices[name]; {
		case !found:
			p.devices[name] = e
		case first != e && !slices.Contains(p.others[name], e):
			if p.others == nil {
				p.others = map[string][]*entry{}
			}
			p.others[name] = append(p.others[name], e)
		}
	}
}

func (p *pool) dropDevices(e *entry) {
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
