package sliceview

import (
	"slices"
	"sync/atomic"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// slicePatch is a ResourceSlicePatch. It is replaced, never written to.
type slicePatch struct {
	object *v1alpha1.ResourceSlicePatch
	// problems say why no part of it is in force; then there is nothing below.
	problems field.ErrorList

	patch    *slicepatch.Patch
	selector selector
	// question is nil if the names of a device are all that matters.
	question *question
}

// question asks about a device beyond its names. The answers are
// kept under it, so that it is another one as soon as one of them could differ.
type question struct {
	// patch is the name of the patch that asks.
	patch  string
	filter *slicepatch.Filter
	// class is nil while there is no such class.
	class *slicepatch.Class
	// last is the verdict on the slice before: most slices are like it.
	last atomic.Pointer[verdict]
}

// class is a DeviceClass, whose selectors are known to compile or not.
type class struct {
	selectors []resourcev1.DeviceSelector
	compiled  *slicepatch.Class
}

// patches holds the patches and the classes.
type patches struct {
	byName map[string]*slicePatch
	// uids has the UIDs of the patches in force.
	uids sets.Set[types.UID]
	// index has the patches in force.
	index   device.Index[*slicePatch]
	lists   map[scope]*scoped
	classes map[string]class
	// taintsOnly says that attributes and capacity of patches are left out.
	taintsOnly bool
}

// scoped are the patches that select whole pools of a scope by name.
type scoped struct {
	// patches are in the order in which they win.
	patches []*slicePatch
	// overlay is what all of them make of a device. It is nil until one needs it.
	overlay *slicepatch.Overlay
}

func newPatches() patches {
	return patches{
		byName: map[string]*slicePatch{}, uids: sets.New[types.UID](), lists: map[scope]*scoped{},
		classes: map[string]class{},
	}
}

// sameObject reports whether two versions of a patch do the same to devices. A write of
// the rest of the status must change nothing.
func sameObject(a, b *v1alpha1.ResourceSlicePatch) bool {
	return a.UID == b.UID && a.CreationTimestamp.Equal(&b.CreationTimestamp) &&
		equality.Semantic.DeepEqual(a.Spec.Devices, b.Spec.Devices) &&
		equality.Semantic.DeepEqual(a.Status.Taints, b.Status.Taints)
}

// compile returns a patch as it has to be kept. Was is the one that it replaces, nil for
// none: the answers for its filter still hold for the same filter and class.
func (p *patches) compile(set *v1alpha1.ResourceSlicePatch, was *slicePatch) *slicePatch {
	if was != nil && was.object == set && (was.question == nil || was.question.class == p.classes[was.question.filter.Class].compiled) {
		return was
	}
	next := &slicePatch{object: set}
	var filter *slicepatch.Filter
	if was != nil && was.patch != nil && equality.Semantic.DeepEqual(was.object.Spec.Devices.Filter, set.Spec.Devices.Filter) {
		filter = was.patch.Filter
	}
	if p.taintsOnly {
		set = slicepatch.WithoutAttributes(set)
	}
	if next.patch, next.problems = slicepatch.Compile(set, filter); next.patch == nil {
		return next
	}
	next.selector, _ = device.SelectorOf(&next.patch.Filter.Names)
	next.question = p.question(next.patch)
	if filter != nil && next.question != nil && next.question.class == was.question.class {
		next.question = was.question
	}
	return next
}

func (p *patches) question(patch *slicepatch.Patch) *question {
	if !patch.Filter.Conditional() {
		return nil
	}
	return &question{patch: patch.Name, filter: patch.Filter, class: p.classes[patch.Filter.Class].compiled}
}

// set takes in a patch in the place of another one of that name.
func (p *patches) set(next *slicePatch) {
	name := next.object.Name
	p.remove(name)
	p.byName[name] = next
	if next.patch == nil {
		return
	}
	p.uids.Insert(next.object.UID)
	p.index.Set(next.selector, name, next)
	clear(p.lists)
}

func (p *patches) remove(name string) {
	was := p.byName[name]
	delete(p.byName, name)
	if was == nil || was.patch == nil {
		return
	}
	p.uids.Delete(was.object.UID)
	p.index.Delete(was.selector, name)
	clear(p.lists)
}

// inForce reports whether the patch with that UID is known and valid.
func (p *patches) inForce(uid types.UID) bool {
	return uid != "" && p.uids.Has(uid)
}

// setClass takes in the selectors of a class, and reports whether they are others than
// before. Those of no class at all are nil.
func (p *patches) setClass(name string, set *resourcev1.DeviceClass) bool {
	was, found := p.classes[name]
	switch {
	case set == nil:
		delete(p.classes, name)
		return found
	case found && equality.Semantic.DeepEqual(was.selectors, set.Spec.Selectors):
		return false
	default:
		p.classes[name] = class{selectors: set.Spec.Selectors, compiled: slicepatch.CompileClass(set)}
		return true
	}
}

// scoped returns the patches that select a pool as a whole by name.
func (p *patches) scoped(pool device.ID) *scoped {
	scope := p.index.ScopeOf(pool)
	if scope.Empty() {
		return nil
	}
	if s, found := p.lists[scope]; found {
		return s
	}
	s := &scoped{}
	for _, entry := range p.index.Scoped(scope) {
		s.patches = append(s.patches, entry.Value)
	}
	slices.SortFunc(s.patches, compare)
	p.lists[scope] = s
	return s
}

func compare(a, b *slicePatch) int { return slicepatch.Compare(a.patch, b.patch) }

// combine returns what patches make of a device together.
func combine(list []*slicePatch) *slicepatch.Overlay {
	patches := make([]*slicepatch.Patch, 0, len(list))
	for _, p := range list {
		patches = append(patches, p.patch)
	}
	return slicepatch.Combine(patches)
}
