package slicepatch

import (
	"errors"
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// Filter says which devices a patch is meant for. It does not change and is safe for
// concurrent use.
type Filter struct {
	// Names are the names that it asks for. Ask does not look at them: a caller with many
	// patches finds by them which to evaluate.
	Names resourcev1.DeviceTaintSelector
	// Class is the name of a DeviceClass, empty for none.
	Class     string
	selectors []selector
}

// selector is an expression about a device. One that does not compile has an error, and fails on
// every device.
type selector struct {
	*expression

	err error
}

func newSelector(in *resourcev1.CELDeviceSelector) selector {
	if in == nil {
		return selector{err: errNoCEL}
	}
	e, err := expressionOf(in.Expression)
	return selector{expression: e, err: err}
}

var errNoCEL = errors.New("selects by something other than cel")

// newFilter compiles a filter. A nil one is for every device.
func newFilter(in *v1alpha1.DevicePatchFilter) *Filter {
	spec := ptr.Deref(in, v1alpha1.DevicePatchFilter{})
	f := &Filter{Names: NamesOf(in), Class: ptr.Deref(spec.DeviceClassName, "")}
	for _, s := range spec.Selectors {
		f.selectors = append(f.selectors, newSelector((*resourcev1.CELDeviceSelector)(s.CEL)))
	}
	return f
}

// NamesOf returns the names that a filter, nil for none, asks for. Unlike the selector of a
// DeviceTaintRule, one that asks for nothing selects every device.
func NamesOf(in *v1alpha1.DevicePatchFilter) resourcev1.DeviceTaintSelector {
	f := ptr.Deref(in, v1alpha1.DevicePatchFilter{})
	return resourcev1.DeviceTaintSelector{Driver: f.Driver, Pool: f.Pool, Device: f.Device}
}

// Conditional reports whether a filter, nil for none, asks for more than names.
func Conditional(in *v1alpha1.DevicePatchFilter) bool {
	return in != nil && (in.DeviceClassName != nil || len(in.Selectors) > 0)
}

// Conditional reports whether the filter asks for more than names.
func (f *Filter) Conditional() bool {
	return f.Class != "" || len(f.selectors) > 0
}

// Class holds the selectors of a DeviceClass. It does not change and is safe for concurrent
// use.
type Class struct {
	selectors []selector
}

// CompileClass compiles the selectors of a class.
func CompileClass(c *resourcev1.DeviceClass) *Class {
	class := &Class{}
	for _, s := range c.Spec.Selectors {
		class.selectors = append(class.selectors, newSelector(s.CEL))
	}
	return class
}

// Ask calls tell for the devices of a slice, in the order of their names, with whether they satisfy all
// that the filter asks for beyond its names; for the device of a name only, where named is set.
// Class is the DeviceClass that the filter names, nil while there is none: then tell is not called,
// and no device satisfies the filter. An error says for its user which expression failed, and why.
//
// The cost of the expressions is bounded for a slice. An expression is not evaluated again on
// devices, in whatever slice, of which it reads the same.
func (f *Filter) Ask(class *Class, devices *Devices, named *string, tell func(at int, yes bool, err error)) {
	if f.Class != "" && class == nil {
		return
	}
	e := &evaluation{devices: devices, filter: f, selectors: f.selectors}
	if class != nil {
		e.selectors = slices.Concat(class.selectors, f.selectors)
	}
	e.results = make([]results, len(e.selectors))
	for _, at := range devices.byName {
		if named == nil || *named == devices.list[at].Name {
			yes, err := e.satisfied(at)
			tell(at, yes, err)
		}
	}
}

// evaluation evaluates the selectors of a class and of a filter on the devices of a slice.
type evaluation struct {
	devices *Devices
	filter  *Filter
	// selectors are those of the class, then those of the filter; results has an entry for each.
	selectors []selector
	results   []results
	// spent is the cost of the answers.
	spent uint64
}

// results are the answers of one selector.
type results struct {
	groups *groups
	// answers are by group.
	answers []*answer
}

// satisfied evaluates the selectors on the device at a position.
func (e *evaluation) satisfied(at int) (bool, error) {
	spent := uint64(0)
	for i := range e.selectors {
		matches, err := e.evaluate(i, at, &spent)
		if ofClass := len(e.selectors) - len(e.filter.selectors); err != nil && i < ofClass {
			return false, fmt.Errorf("device class %s: selectors[%d]: %w", policy.Short(e.filter.Class, policy.MaxKeyLength), i, err)
		} else if err != nil {
			return false, fmt.Errorf("selectors[%d]: %w", i-ofClass, err)
		}
		if !matches {
			return false, nil
		}
	}
	return true, nil
}

// evaluate evaluates one selector. Spent is the cost of the selectors before it on the device.
func (e *evaluation) evaluate(i, at int, spent *uint64) (bool, error) {
	s, r := &e.selectors[i], &e.results[i]
	if s.err != nil {
		return false, s.err
	}
	if r.groups == nil {
		r.groups = e.devices.groupsFor(&s.reads)
	}
	group := e.devices.group(r.groups, &s.reads, at)
	for len(r.answers) <= group {
		r.answers = append(r.answers, nil)
	}
	a := r.answers[group]
	if a == nil {
		if e.spent >= maxSliceCost {
			return false, errGivenUp
		}
		a = s.answer(r.groups.keys[group], func() *cel.Device { return e.devices.device(&s.reads, at) })
		r.answers[group] = a
		e.spent += a.cost
	}
	*spent += a.cost
	if a.err == nil && *spent > maxCost {
		return false, errTooCostly
	}
	return a.matches, a.err
}
