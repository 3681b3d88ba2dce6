package sliceview

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

type (
	selector = device.Selector
	scope    = device.Scope
)

// rule is the kept part of a DeviceTaintRule. The zero rule selects nothing.
type rule struct {
	selector selector
	selects  bool
	taint    resourcev1.DeviceTaint
	// writtenFor is the patch that the rule was written out for, empty for none.
	writtenFor types.UID
	// silent is set while that patch is in force here: it taints by itself.
	silent bool
}

// counts reports whether the rule taints devices.
func (r rule) counts() bool { return r.selects && !r.silent }

// same reports whether the two rules taint alike. A write of a status must change
// nothing.
func (r rule) same(other rule) bool {
	return r.selects == other.selects && r.selector == other.selector && r.writtenFor == other.writtenFor && SameTaint(r.taint, other.taint)
}

// rules holds the rules that select something, and the lists of taints that
// slices share.
type rules struct {
	byName map[string]rule
	// writtenFor has the names of those that were written out for a patch.
	writtenFor device.Table[types.UID, string, struct{}]
	// index has those that count.
	index device.Index[*resourcev1.DeviceTaint]
	lists map[scope]list
}

// list has the taints that the rules of a scope add to every device.
type list struct {
	// rules are the taints of the rules, under their names.
	rules []device.Entry[*resourcev1.DeviceTaint]
	// taints are those of the rules, to be shared by all devices that have no
	// others; nil for a list of one device.
	taints []resourcev1.DeviceTaint
}

func (r *rules) set(name string, next rule) {
	r.remove(name)
	if !next.selects {
		return
	}
	r.byName[name] = next
	if next.writtenFor != "" {
		r.writtenFor.Set(next.writtenFor, name, struct{}{})
	}
	if next.counts() {
		r.index.Set(next.selector, name, &next.taint)
		r.forget(next.selector)
	}
}

func (r *rules) remove(name string) {
	was := r.byName[name]
	delete(r.byName, name)
	r.writtenFor.Delete(was.writtenFor, name)
	if was.counts() {
		r.index.Delete(was.selector, name)
		r.forget(was.selector)
	}
}

// forget drops the lists that hold no more when what is under a selector changes.
// Those that could stay are made again from no more than they hold.
func (r *rules) forget(changed selector) {
	if _, named := changed.Name(); !named {
		clear(r.lists)
	}
}

// inPool returns the taints that are added to every device of a pool.
func (r *rules) inPool(pool device.ID) list {
	scope := r.index.ScopeOf(pool)
	if scope.Empty() {
		return list{}
	}
	if l, found := r.lists[scope]; found {
		return l
	}
	l := list{rules: r.index.Scoped(scope)}
	l.taints = l.behind(nil)
	r.lists[scope] = l
	return l
}
