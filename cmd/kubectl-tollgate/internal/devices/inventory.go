package devices

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// Inventory has the devices of a cluster. Added objects must not be modified.
type Inventory struct {
	// Looked is called with the number of evaluated devices after each pool, if not nil:
	// expressions may be slow.
	Looked func(devices int)

	filter Filter
	view   *sliceview.View
	// pools have the slices of the newest generation of each pool, by name. Their keys have no name of
	// a device, and have the driver, since two drivers may use one name for a pool (K09).
	pools  map[device.ID]map[string]*resourcev1.ResourceSlice
	claims map[device.ID][]Claim
	class  *Class
	// needsClasses is true if the filter or a patch names a class.
	needsClasses bool

	// invalid and unsupported are notes about patches and rules that are not in force.
	invalid, unsupported []string

	// matched is the number of devices last yielded.
	matched int
}

// Device is a device after patches and rules.
type Device struct {
	sliceview.Explanation

	// Slice has the device, and Spec is the device in it. Both are read-only.
	Slice *resourcev1.ResourceSlice
	Spec  *resourcev1.Device
	// Claims are the claims to which the device is allocated, by namespace and name.
	Claims []Claim
}

// Claim is a ResourceClaim that a device is allocated to.
type Claim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// AdminAccess is true if the claim has the device beside those that use it.
	AdminAccess bool `json:"adminAccess,omitempty"`
	// Consumers are the names in reservedFor: pods by name, others as resource/name.
	Consumers []string `json:"reservedFor,omitempty"`
}

// NewTable returns an empty inventory with a filter.
func NewTable(filter Filter) *Inventory {
	return &Inventory{
		filter: filter, view: sliceview.New(), needsClasses: filter.Class != "",
		pools: map[device.ID]map[string]*resourcev1.ResourceSlice{}, claims: map[device.ID][]Claim{},
	}
}

// AddSlice adds a ResourceSlice, unless the filter excludes all of it, or the pool has a newer
// generation.
func (v *Inventory) AddSlice(slice *resourcev1.ResourceSlice) {
	name := device.ID{Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name}
	if !v.filter.names(name) {
		return
	}
	pool := v.pools[name]
	for older, other := range pool {
		switch cmp.Compare(other.Spec.Pool.Generation, slice.Spec.Pool.Generation) {
		case 1:
			return
		case -1:
			v.view.DeleteSlice(older)
			delete(pool, older)
		}
	}
	if pool == nil {
		pool = map[string]*resourcev1.ResourceSlice{}
		v.pools[name] = pool
	}
	pool[slice.Name] = slice
	v.view.SetSlice(slice)
}

// AddPatch adds a ResourceSlicePatch.
func (v *Inventory) AddPatch(patch *v1alpha1.ResourceSlicePatch) {
	filter := patch.Spec.Devices.Filter
	v.needsClasses = v.needsClasses || filter != nil && filter.DeviceClassName != nil
	v.view.SetPatch(patch)
	if errs := slicepatch.ValidatePatch(patch); len(errs) > 0 {
		v.invalid = append(v.invalid, "not in force: ResourceSlicePatch "+patch.Name+": "+errs[0].Error())
	}
}

// AddRule adds a DeviceTaintRule of resource.k8s.io/v1. Unsupported are unknown fields of its
// selector; with any of them it selects nothing.
func (v *Inventory) AddRule(rule *resourcev1.DeviceTaintRule, unsupported []string) {
	if len(unsupported) > 0 {
		v.unsupported = append(v.unsupported, "selects by more than names and is left out: DeviceTaintRule "+rule.Name)
	} else {
		v.view.SetRule(rule)
	}
}

// AddClass adds a DeviceClass. Only classes that patches or the filter name are needed.
func (v *Inventory) AddClass(set *resourcev1.DeviceClass) {
	v.view.SetClass(set)
	if set.Name == v.filter.Class {
		v.class = CompileClass(set.Spec.Selectors)
	}
}

// AddClaim adds a ResourceClaim. Claims without devices to show are dropped.
func (v *Inventory) AddClaim(claim *resourcev1.ResourceClaim) {
	if claim.Status.Allocation == nil {
		return
	}
	var consumers []string
	for _, c := range claim.Status.ReservedFor {
		if c.APIGroup != "" || c.Resource != "pods" {
			c.Name = c.Resource + "/" + c.Name
		}
		consumers = append(consumers, c.Name)
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		id := device.ID{Driver: result.Driver, Pool: result.Pool, Name: result.Device}
		if !v.filter.names(id) {
			continue
		}
		added := Claim{Namespace: claim.Namespace, Name: claim.Name, Consumers: consumers, AdminAccess: result.AdminAccess != nil && *result.AdminAccess}
		at, found := slices.BinarySearchFunc(v.claims[id], added, func(a, b Claim) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
		if !found {
			v.claims[id] = slices.Insert(v.claims[id], at, added)
		}
		one := &v.claims[id][at]
		one.AdminAccess = one.AdminAccess && added.AdminAccess // A claim may have several shares of a device.
	}
}

// Devices yields the devices that satisfy the filter, by driver, pool and name, once all
// objects were added. It ends early if ctx does.
func (v *Inventory) Devices(ctx context.Context) iter.Seq[*Device] {
	return func(yield func(*Device) bool) {
		for pool := range v.byPool(ctx) {
			for _, d := range pool {
				if !yield(d) {
					return
				}
			}
		}
	}
}

// byPool yields the devices of each pool that satisfy the filter, by name.
func (v *Inventory) byPool(ctx context.Context) iter.Seq[[]*Device] {
	return func(yield func([]*Device) bool) {
		looked := 0
		v.matched = 0
		if v.class != nil {
			v.class.failed = 0
		}
		for _, name := range slices.SortedFunc(maps.Keys(v.pools), device.Compare) {
			//nolint:contextcheck // What is merged here ends by its cost, not by a context.
			if ctx.Err() != nil || !yield(v.devicesOf(v.pools[name])) {
				return
			}
			for _, slice := range v.pools[name] {
				looked += len(slice.Spec.Devices)
			}
			if v.Looked != nil {
				v.Looked(looked)
			}
		}
	}
}

// devicesOf returns the devices of a pool that satisfy the filter, by name, and counts them in matched.
func (v *Inventory) devicesOf(pool map[string]*resourcev1.ResourceSlice) []*Device {
	var list []*Device
	f := &v.filter
	for _, name := range slices.Sorted(maps.Keys(pool)) {
		if f.Device != "" && !hasDevice(pool[name], f.Device) {
			continue
		}
		slice, _ := v.view.Get(name)
		explained, _ := v.view.Explain(name)
		for i := range explained {
			d := &Device{Explanation: explained[i], Slice: slice, Spec: &slice.Spec.Devices[i], Claims: v.claims[explained[i].Device]}
			if f.names(d.Device) && (!f.Tainted || len(d.Taints) > 0) && (!f.Patched || len(d.Patches)+len(d.Failed) > 0) &&
				(f.Class == "" || v.class != nil && v.class.Selects(d)) {
				list = append(list, d)
			}
		}
	}
	v.matched += len(list)
	slices.SortStableFunc(list, func(a, b *Device) int { return cmp.Compare(a.Device.Name, b.Device.Name) })
	return list
}

func hasDevice(slice *resourcev1.ResourceSlice, name string) bool {
	return slices.ContainsFunc(slice.Spec.Devices, func(d resourcev1.Device) bool { return d.Name == name })
}

// Filter selects devices that match all set fields.
type Filter struct {
	Driver, Pool, Device string
	// Class is the name of a DeviceClass whose selectors must match the merged device, as for a
	// claim.
	Class string
	// Tainted selects devices with a taint of any effect.
	Tainted bool
	// Patched selects devices that a ResourceSlicePatch selects, or failed on.
	Patched bool
}

// names reports whether the filter has the names of a device, or of a pool if id has no name of a device.
func (f *Filter) names(id device.ID) bool {
	return (f.Driver == "" || f.Driver == id.Driver) && (f.Pool == "" || f.Pool == id.Pool) && (f.Device == "" || id.Name == "" || f.Device == id.Name)
}

// Class selects devices by the selectors of a DeviceClass, with the cost limit of classes in
// Kubernetes, which is above that of patches.
type Class struct {
	// programs are the compiled selectors, with an error for one without an expression.
	programs []cel.CompilationResult
	// failed is the number of devices on which an expression failed, and problem has the first of them
	// and its error.
	failed  int
	problem string
}

// CompileClass returns a class with selectors.
func CompileClass(selectors []resourcev1.DeviceSelector) *Class {
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true})
	c := &Class{}
	for _, s := range selectors {
		program := cel.CompilationResult{Error: &apiservercel.Error{Detail: "selects by something other than cel"}}
		if s.CEL != nil {
			program = compiler.CompileCELExpression(s.CEL.Expression, cel.Options{DisableCostEstimation: true})
		}
		c.programs = append(c.programs, program)
	}
	return c
}

// Selects reports whether all selectors match a device. A failed expression does not.
func (c *Class) Selects(d *Device) bool {
	seen := cel.Device{
		Driver: d.Device.Driver, AllowMultipleAllocations: d.Spec.AllowMultipleAllocations, Attributes: d.Spec.Attributes, Capacity: d.Spec.Capacity,
	}
	for i := range c.programs {
		program, selected := &c.programs[i], false
		var err error
		if program.Error != nil {
			err = errors.New(program.Error.Detail)
		} else {
			selected, _, err = program.DeviceMatches(context.Background(), seen) // It ends by its cost.
		}
		if err != nil {
			if c.failed++; c.failed == 1 {
				problem, _, _ := strings.Cut(err.Error(), "\n")
				c.problem = d.Device.String() + ": " + policy.Short(problem, 256)
			}
		}
		if !selected {
			return false
		}
	}
	return true
}
