package devices

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
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
	pools  map[poolName]*pool
	claims map[device.ID][]Claim
	class  *class

	invalid     []string
	unsupported []string
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

// NewTable returns an empty inventory with a filter.
func NewTable(filter Filter) *Inventory {
	return &Inventory{filter: filter, view: sliceview.New(), pools: map[poolName]*pool{}, claims: map[device.ID][]Claim{}}
}

// AddSlice adds a ResourceSlice, unless the filter excludes all of it.
func (v *Inventory) AddSlice(slice *resourcev1.ResourceSlice) {
	name := poolName{driver: slice.Spec.Driver, pool: slice.Spec.Pool.Name}
	if !v.filter.pool(name) {
		return
	}
	p := v.pools[name]
	if p == nil {
		p = &pool{slices: map[string]*resourcev1.ResourceSlice{}}
		v.pools[name] = p
	}
	dropped, taken := p.add(slice)
	for _, old := range dropped {
		v.view.DeleteSlice(old)
	}
	if taken {
		v.view.SetSlice(slice)
	}
}

// AddPatch adds a ResourceSlicePatch.
func (v *Inventory) AddPatch(patch *v1alpha1.ResourceSlicePatch) {
	v.view.SetPatch(patch)
	if errs := slicepatch.ValidatePatch(patch); len(errs) > 0 {
		v.invalid = append(v.invalid, patch.Name+": "+errs[0].Error())
	}
}

// AddRule adds a DeviceTaintRule of resource.k8s.io/v1. Unsupported are unknown fields of its
// selector; with any of them it selects nothing.
func (v *Inventory) AddRule(rule *resourcev1.DeviceTaintRule, unsupported []string) {
	if len(unsupported) > 0 {
		v.unsupported = append(v.unsupported, rule.Name)
		return
	}
	v.view.SetRule(rule)
}

// AddClass adds a DeviceClass. Only classes that patches or the filter name are needed.
func (v *Inventory) AddClass(set *resourcev1.DeviceClass) {
	v.view.SetClass(set)
	if set.Name == v.filter.Class && set.Name != "" {
		v.class = compileClass(set)
	}
}

// Devices yields the devices that satisfy the filter, by driver, pool and name, once all
// objects were added. It ends early if ctx does.
func (v *Inventory) Devices(ctx context.Context) iter.Seq[*Device] {
	return func(yield func(*Device) bool) {
		v.matched = 0
		if v.class != nil {
			v.class.forget()
		}
		for devices := range v.byPool(ctx) {
			for _, d := range devices {
				v.matched++
				if !yield(d) {
					return
				}
			}
		}
	}
}

// Slices yields the merged slices that have a device that satisfies the filter, whole, by
// driver, pool and name of the slice, and each once. It ends early if ctx does.
func (v *Inventory) Slices(ctx context.Context) iter.Seq[*resourcev1.ResourceSlice] {
	return func(yield func(*resourcev1.ResourceSlice) bool) {
		for devices := range v.byPool(ctx) {
			found := map[string]*resourcev1.ResourceSlice{}
			for _, d := range devices {
				found[d.Slice.Name] = d.Slice
			}
			for _, slice := range slices.Sorted(maps.Keys(found)) {
				if !yield(found[slice]) {
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
		for _, name := range slices.SortedFunc(maps.Keys(v.pools), comparePools) {
			//nolint:contextcheck // What is merged here ends by its cost, not by a context.
			if ctx.Err() != nil || !yield(v.devicesOf(v.pools[name])) {
				return
			}
			for _, slice := range v.pools[name].slices {
				looked += len(slice.Spec.Devices)
			}
			if v.Looked != nil {
				v.Looked(looked)
			}
		}
	}
}

// devicesOf returns the devices of a pool, by name.
func (v *Inventory) devicesOf(p *pool) []*Device {
	var list []*Device
	for _, name := range slices.Sorted(maps.Keys(p.slices)) {
		if !v.filter.slice(p.slices[name]) {
			continue
		}
		slice, _ := v.view.Get(name)
		explained, _ := v.view.Explain(name)
		for i := range explained {
			d := &Device{Explanation: explained[i], Slice: slice, Spec: &slice.Spec.Devices[i], Claims: v.claims[explained[i].Device]}
			if v.shows(d) {
				list = append(list, d)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *Device) int { return cmp.Compare(a.Device.Name, b.Device.Name) })
	return list
}
