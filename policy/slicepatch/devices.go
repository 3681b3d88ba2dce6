package slicepatch

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

// Devices are the published devices of a slice as filters look at them: devices of which an
// expression reads the same are grouped once for many patches. It keeps the slice, and is for
// one goroutine.
type Devices struct {
	driver string
	list   []resourcev1.Device
	// byName are the positions in the order of the names.
	byName []int
	// groups are by the id of the reads.
	groups map[string]*groups
	// key and values are buffers.
	key    []byte
	values []value
}

// See returns the devices of a slice for filters to look at.
func See(spec *resourcev1.ResourceSliceSpec) *Devices {
	d := &Devices{driver: spec.Driver, list: spec.Devices, byName: make([]int, len(spec.Devices)), groups: map[string]*groups{}}
	for i := range d.byName {
		d.byName[i] = i
	}
	slices.SortStableFunc(d.byName, func(a, b int) int { return strings.Compare(d.list[a].Name, d.list[b].Name) })
	return d
}

// groups are the groups of devices of which the same is read.
type groups struct {
	// of are the groups by the position of the device, counted from 1; 0 is not computed yet.
	of []int
	// keys encode the values that are read of the devices of each group.
	keys  []string
	byKey map[string]int
}

// groupsFor returns the groups for what an expression reads.
func (d *Devices) groupsFor(r *reads) *groups {
	g := d.groups[r.id]
	if g == nil {
		g = &groups{of: make([]int, len(d.list)), byKey: map[string]int{}}
		d.groups[r.id] = g
	}
	return g
}

// group returns the group of a device.
func (d *Devices) group(g *groups, r *reads, at int) int {
	if g.of[at] == 0 {
		d.key = d.appendKey(d.key[:0], r, &d.list[at])
		group, found := g.byKey[string(d.key)]
		if !found {
			group = len(g.keys)
			g.keys = append(g.keys, string(d.key))
			g.byKey[g.keys[group]] = group
		}
		g.of[at] = group + 1
	}
	return g.of[at] - 1
}

// device returns a device with the values that are read, and no others.
func (d *Devices) device(r *reads, at int) *cel.Device {
	in := &d.list[at]
	return &cel.Device{
		Driver: d.driver, AllowMultipleAllocations: in.AllowMultipleAllocations,
		Attributes: only(d, &r.attributes, in.Attributes), Capacity: only(d, &r.capacity, in.Capacity),
	}
}

// only returns the values that are read, under their names with the domain.
func only[V any](d *Devices, read *part, values map[name]V) map[name]V {
	d.values = gather(d.values[:0], d.driver, read, values)
	out := make(map[name]V, len(d.values))
	for _, v := range d.values {
		out[name(v.domain+"/"+v.id)] = values[v.spelt]
	}
	return out
}

// value is the name under which a driver publishes the value at a path.
type value struct {
	path

	spelt name
}

// gather finds the values that are read, in an order that depends on their names only. A
// name without a domain is one of the driver's; where a driver has both spellings, the
// long one is taken, as it is where patches are applied.
func gather[V any](found []value, driver string, read *part, values map[name]V) []value {
	if read.all {
		return gatherDomain(found, driver, values, nil)
	}
	for _, p := range read.paths {
		if p.id == "" {
			found = gatherDomain(found, driver, values, &p.domain)
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

// gatherDomain finds the values of a domain, of all domains for nil.
func gatherDomain[V any](found []value, driver string, values map[name]V, wanted *string) []value {
	start := len(found)
	for spelt := range values {
		domain, id, long := strings.Cut(string(spelt), "/")
		if !long {
			domain, id = driver, string(spelt)
			if _, both := values[name(driver+"/"+id)]; both {
				continue
			}
		}
		if wanted == nil || *wanted == domain {
			found = append(found, value{path: path{domain, id}, spelt: spelt})
		}
	}
	slices.SortFunc(found[start:], func(a, b value) int { return a.compare(b.path) })
	return found
}

// appendKey encodes the values that are read of a device: two devices with the same key look
// the same to the expression.
func (d *Devices) appendKey(b []byte, r *reads, in *resourcev1.Device) []byte {
	b = strconv.AppendBool(appendText(b, d.driver), ptr.Deref(in.AllowMultipleAllocations, false))
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

// appendAttribute writes down the form in which the API server stores an attribute.
func appendAttribute(b []byte, a *resourcev1.DeviceAttribute) []byte {
	size := a.Size()
	b = slices.Grow(binary.AppendVarint(b, int64(size)), size)
	end := len(b) + size
	_, _ = a.MarshalToSizedBuffer(b[len(b):end]) // no error is possible for its own size
	return b[:end]
}

func appendText(b []byte, v string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}
