package merged

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

type (
	selector = device.Selector
	scope    = device.Scope
	// patch is the taint of a rule, under the name of the rule.
	patch = device.Entry[*resourcev1.DeviceTaint]
)

// rule is what is kept of a DeviceTaintRule. The zero rule selects nothing.
type rule struct {
	selector selector
	selects  bool
	taint    resourcev1.DeviceTaint
}

func ruleOf(r *resourcev1.DeviceTaintRule) rule {
	selector, selects := device.SelectorOf(r.Spec.DeviceSelector)
	return rule{selector: selector, selects: selects, taint: r.Spec.Taint}
}

// same reports whether the two rules taint alike. A write of a status must not
// concern anybody.
func (r rule) same(other rule) bool {
	if !r.selects || !other.selects {
		return r.selects == other.selects
	}
	return r.selector == other.selector && sameTaint(r.taint, other.taint)
}

// rules holds the rules that select something, and the lists of taints that
// slices share.
type rules struct {
	byName map[string]rule
	index  device.Index[*resourcev1.DeviceTaint]
	lists  map[scope]list
}

// list is what the rules of a scope add to every device.
type list struct {
	patches []patch
	// taints are those of the patches, to be shared by all devices that have no
	// others.
	taints []resourcev1.DeviceTaint
}

func (r *rules) set(name string, next rule) {
	r.remove(name)
	if !next.selects {
		return
	}
	r.byName[name] = next
	r.index.Set(next.selector, name, &next.taint)
	r.forget(next.selector)
}

func (r *rules) remove(name string) {
	was, found := r.byName[name]
	if !found {
		return
	}
	delete(r.byName, name)
	r.index.Delete(was.selector, name)
	r.forget(was.selector)
}

// forget drops the lists that hold no more when what is under a selector changes.
// Those that could stay are made again from no more than they hold.
func (r *rules) forget(changed selector) {
	if _, named := changed.Name(); !named {
		clear(r.lists)
	}
}

// inPool returns what is added to every device of a pool.
func (r *rules) inPool(driver, pool string) list {
	scope := r.index.ScopeOf(driver, pool)
	if scope.Empty() {
		return list{}
	}
	if l, found := r.lists[scope]; found {
		return l
	}
	l := list{patches: r.index.Scoped(scope)}
	l.taints = make([]resourcev1.DeviceTaint, 0, len(l.patches))
	for _, p := range l.patches {
		l.taints = append(l.taints, *p.Value)
	}
	r.lists[scope] = l
	return l
}
