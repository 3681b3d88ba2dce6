package slicepatch

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

type device = cel.Device

// Devices are the published devices of a slice as filters look at them: what many patches
// read is gathered once. It keeps what it was made of, and is for one goroutine.
type Devices struct {
	driver string
	list   []resourcev1.Device
	// byName are the positions in the order of the names.
	byName []int
	known  map[string]*readings
	// buffers, for what is short-lived
	key    []byte
	values []value
}

// See returns the devices of a slice for filters to look at.
func See(spec *resourcev1.ResourceSliceSpec) *Devices {
	return &Devices{driver: spec.Driver, list: spec.Devices}
}

// readings are what an expression reads of devices. Those of which it reads the same are
// a group.
type readings struct {
	reads  *reads
	groups []int // by position, one more than the group; 0 is not known yet
	keys   []string
	byKey  map[string]int
}

func (d *Devices) readings(r *reads) *readings {
	if found := d.known[r.id]; found != nil {
		return found
	}
	if d.known == nil {
		d.known = map[string]*readings{}
	}
	d.known[r.id] = &readings{reads: r, groups: make([]int, len(d.list)), byKey: map[string]int{}}
	return d.known[r.id]
}

func (r *readings) group(d *Devices, at int) int {
	if known := r.groups[at]; known > 0 {
		return known - 1
	}
	d.key = d.appendKey(d.key[:0], r.reads, &d.list[at])
	group, found := r.byKey[string(d.key)]
	if !found {
		group = len(r.keys)
		r.keys = append(r.keys, string(d.key))
		r.byKey[r.keys[group]] = group
	}
	r.groups[at] = group + 1
	return group
}

// order returns the positions in the order of the names.
func (d *Devices) order() []int {
	if d.byName == nil {
		d.byName = make([]int, len(d.list))
		for i := range d.byName {
			d.byName[i] = i
		}
		slices.SortFunc(d.byName, func(a, b int) int {
			return cmp.Or(strings.Compare(d.list[a].Name, d.list[b].Name), cmp.Compare(a, b))
		})
	}
	return d.byName
}

// device returns what is read of a device, and no more of it.
func (d *Devices) device(r *reads, at int) *device {
	in := &d.list[at]
	out := &device{Driver: d.driver, AllowMultipleAllocations: in.AllowMultipleAllocations}
	d.values = gather(d.values[:0], d.driver, &r.attributes, in.Attributes)
	out.Attributes = make(attributes, len(d.values))
	for _, v := range d.values {
		out.Attributes[v.full()] = in.Attributes[v.spelt]
	}
	d.values = gather(d.values[:0], d.driver, &r.capacity, in.Capacity)
	out.Capacity = make(capacities, len(d.values))
	for _, v := range d.values {
		out.Capacity[v.full()] = in.Capacity[v.spelt]
	}
	return out
}

// value is where the value at a path is.
type value struct {
	path

	spelt name
}

func (v *value) full() name { return name(v.domain + "/" + v.id) }

// gather finds the values that are read, in an order that depends on their names only. A
// name without a domain is one of the driver's; where a driver has both spellings, the
// long one is taken, as it is where patches are applied.
func gather[V any](found []value, driver string, read *part, values map[name]V) []value {
	if read.all {
		return gatherAll(found, driver, values, func(path) bool { return true })
	}
	for _, p := range read.paths {
		if p.id == "" {
			found = gatherAll(found, driver, values, func(at path) bool { return at.domain == p.domain })
			continue
		}
		long := name(p.domain + "/" + p.id)
		if _, ok := values[long]; ok {
			found = append(found, value{path: p, spelt: long})
		} else if _, ok := values[name(p.id)]; ok && p.domain == driver && !strings.Contains(p.id, "/") {
			found = append(found, value{path: p, spelt: name(p.id)})
		}
	}
	return found
}

func gatherAll[V any](found []value, driver string, values map[name]V, wanted func(path) bool) []value {
	start := len(found)
	for _, spelt := range slices.Sorted(maps.Keys(values)) {
		at := path{domain: driver, id: string(spelt)}
		if domain, id, long := strings.Cut(string(spelt), "/"); long {
			at = path{domain: domain, id: id}
		} else if _, both := values[name(driver+"/"+string(spelt))]; both {
			continue
		}
		if wanted(at) {
			found = append(found, value{path: at, spelt: spelt})
		}
	}
	slices.SortFunc(found[start:], func(a, b value) int {
		return cmp.Or(strings.Compare(a.domain, b.domain), strings.Compare(a.id, b.id))
	})
	return found
}

// appendKey writes down what is read of a device: two of which the same is written look
// the same to the expression.
func (d *Devices) appendKey(b []byte, r *reads, in *resourcev1.Device) []byte {
	b = appendText(b, d.driver)
	b = append(b, flag(in.AllowMultipleAllocations != nil && *in.AllowMultipleAllocations))
	d.values = gather(d.values[:0], d.driver, &r.attributes, in.Attributes)
	b = binary.AppendUvarint(b, uint64(len(d.values)))
	for _, v := range d.values {
		attribute := in.Attributes[v.spelt]
		b = appendAttribute(appendText(appendText(b, v.domain), v.id), &attribute)
	}
	d.values = gather(d.values[:0], d.driver, &r.capacity, in.Capacity)
	b = binary.AppendUvarint(b, uint64(len(d.values)))
	for _, v := range d.values {
		quantity := in.Capacity[v.spelt].Value
		b = appendText(appendText(appendText(b, v.domain), v.id), quantity.String())
	}
	return b
}

// appendAttribute writes down every field, with those that are missing.
func appendAttribute(b []byte, a *resourcev1.DeviceAttribute) []byte {
	b = appendList(b, a.IntValue != nil, pointed(a.IntValue), appendInt)
	b = appendList(b, a.BoolValue != nil, pointed(a.BoolValue), appendBool)
	b = appendList(b, a.StringValue != nil, pointed(a.StringValue), appendText)
	b = appendList(b, a.VersionValue != nil, pointed(a.VersionValue), appendText)
	b = appendList(b, a.IntValues != nil, a.IntValues, appendInt)
	b = appendList(b, a.BoolValues != nil, a.BoolValues, appendBool)
	b = appendList(b, a.StringValues != nil, a.StringValues, appendText)
	return appendList(b, a.VersionValues != nil, a.VersionValues, appendText)
}

func appendList[V any](b []byte, set bool, list []V, appendOne func([]byte, V) []byte) []byte {
	b = append(b, flag(set))
	if !set {
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, v := range list {
		b = appendOne(b, v)
	}
	return b
}

func pointed[V any](v *V) []V {
	if v == nil {
		return nil
	}
	return []V{*v}
}

func appendInt(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

func appendBool(b []byte, v bool) []byte { return append(b, flag(v)) }

func appendText(b []byte, v string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}
