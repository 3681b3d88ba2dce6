package view

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
)

// set implements view.Set.
type set struct {
	patches map[types.UID]*patchesPatch
	// named finds patches by what their filters ask for by name; empty is for any.
	named map[names][]*patchesPatch
	// naming is set if any asks for devices by name.
	naming bool
	// questions are those of the patches.
	questions map[*question]struct{}
}

type names struct {
	driver, pool, device string
}

// patchesPatch is a patch that can be applied.
type patchesPatch struct {
	*slicepatch.Patch
	generation int64
	filter     *v1alpha1.DevicePatchFilter
	// question is nil where names alone decide.
	question *question
}

// question is what a filter asks of devices beyond their names. Answers to it are
// remembered by its pointer, so it is handed on from set to set while it is the same.
type question struct {
	filter *slicepatch.Filter
	// of is what class was compiled from, nil while there is no such class.
	of    *resourcev1.DeviceClass
	class *slicepatch.Class
}

// CompilePatches is a view.Compile. A patch that is not valid does nothing: the API server
// refuses it, and Tollgate reports it where one is found nevertheless.
func CompilePatches(objects []*v1alpha1.ResourceSlicePatch, class Class, previous Set) Set {
	before, _ := previous.(*set)
	s := &set{patches: make(map[types.UID]*patchesPatch, len(objects)), named: map[names][]*patchesPatch{}, questions: map[*question]struct{}{}}
	for _, object := range objects {
		var earlier *patchesPatch
		if before != nil {
			earlier = before.patches[object.UID]
		}
		p := compile(object, class, earlier)
		if p == nil {
			continue
		}
		s.patches[object.UID] = p
		asked := namesOf(p.Filter)
		s.named[asked] = append(s.named[asked], p)
		s.naming = s.naming || asked.device != ""
		if p.question != nil {
			s.questions[p.question] = struct{}{}
		}
	}
	return s
}

// Has reports whether the patch with that UID is in the set.
func (s *set) Has(uid types.UID) bool {
	_, found := s.patches[uid]
	return found
}

func compile(object *v1alpha1.ResourceSlicePatch, class Class, earlier *patchesPatch) *patchesPatch {
	p := &patchesPatch{generation: object.Generation, filter: object.Spec.Devices.Filter}
	var sameFilter bool
	if earlier != nil && earlier.generation == object.Generation {
		p.Patch, sameFilter = earlier.Patch, true
	} else {
		var filter *slicepatch.Filter
		if sameFilter = earlier != nil && equality.Semantic.DeepEqual(earlier.filter, p.filter); sameFilter {
			filter = earlier.Filter
		}
		compiled, errs := slicepatch.Compile(object, filter)
		if len(errs) > 0 {
			return nil
		}
		p.Patch = compiled
	}
	if !p.Filter.Conditional() {
		return p
	}
	p.question = &question{filter: p.Filter}
	if p.Filter.Class != "" {
		p.question.of = class(p.Filter.Class)
	}
	if sameFilter && patchesSameClass(earlier.question.of, p.question.of) {
		p.question = earlier.question
	} else if p.question.of != nil {
		p.question.class = slicepatch.CompileClass(p.question.of)
	}
	return p
}

func patchesSameClass(a, b *resourcev1.DeviceClass) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equality.Semantic.DeepEqual(a.Spec.Selectors, b.Spec.Selectors)
}

func namesOf(filter *slicepatch.Filter) names {
	return names{
		driver: ptr.Deref(filter.Names.Driver, ""),
		pool:   ptr.Deref(filter.Names.Pool, ""),
		device: ptr.Deref(filter.Names.Device, ""),
	}
}
