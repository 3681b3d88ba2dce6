package sliceview_test

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// objects are what a view was fed with, by name.
type objects struct {
	slices  map[string]*resourcev1.ResourceSlice
	rules   map[string]*resourcev1.DeviceTaintRule
	patches map[string]*v1alpha1.ResourceSlicePatch
	classes map[string]*resourcev1.DeviceClass
}

// outcome is what is to be seen: each device of each slice, and what each patch does.
type outcome struct {
	devices map[string][]string
	// matched, failed and limited devices.
	reports map[string][3]int
}

// expected computes the outcome from scratch, by the words of DESIGN and the KEP and as
// simply as can be.
func (o objects) expected() outcome {
	out := outcome{devices: map[string][]string{}, reports: map[string][3]int{}}
	for name := range o.patches {
		out.reports[name] = [3]int{}
	}
	for _, s := range o.slices {
		list := []string{}
		reports := out.reports
		if o.outdated(s) {
			reports = map[string][3]int{} // It is patched all the same, and not counted.
		}
		for i := range s.Spec.Devices {
			list = append(list, o.device(s, &s.Spec.Devices[i], reports))
		}
		out.devices[s.Name] = list
	}
	return out
}

// outdated reports whether the pool of a slice has a later generation.
func (o objects) outdated(s *resourcev1.ResourceSlice) bool {
	for _, other := range o.slices {
		if other.Spec.Driver == s.Spec.Driver && other.Spec.Pool.Name == s.Spec.Pool.Name && other.Spec.Pool.Generation > s.Spec.Pool.Generation {
			return true
		}
	}
	return false
}

func (o objects) device(s *resourcev1.ResourceSlice, d *resourcev1.Device, reports map[string][3]int) string {
	count := func(name string, of int) {
		report := reports[name]
		report[of]++
		reports[name] = report
	}
	var meant []*v1alpha1.ResourceSlicePatch
	for name, p := range o.patches {
		switch o.answer(p, s, d) {
		case yes:
			meant = append(meant, p)
			count(name, 0)
		case fails:
			count(name, 1)
		case no:
		}
	}
	slices.SortFunc(meant, func(a, b *v1alpha1.ResourceSlicePatch) int {
		return cmp.Or(cmp.Compare(b.Spec.Devices.Priority, a.Spec.Devices.Priority),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	published := plain(s.Spec.Driver, d)
	patched := maps.Clone(published)
	for _, p := range slices.Backward(meant) { // whoever wins comes last
		for name, value := range p.Spec.Devices.Attributes {
			delete(patched, "a "+string(name))
			if value.NullValue == nil {
				patched["a "+string(name)] = strconv.FormatInt(*value.IntValue, 10)
			}
		}
		for name, value := range p.Spec.Devices.Capacity {
			patched["c "+string(name)] = strconv.FormatInt(value.Value.Value(), 10)
		}
	}
	if len(patched) > 32 {
		for _, p := range meant {
			if len(p.Spec.Devices.Attributes)+len(p.Spec.Devices.Capacity) > 0 {
				count(p.Name, 2)
			}
		}
		patched = published
	}
	return written(d.Name, patched, o.taints(s, d, meant))
}

func (o objects) taints(s *resourcev1.ResourceSlice, d *resourcev1.Device, meant []*v1alpha1.ResourceSlicePatch) []string {
	var keys []string
	for _, t := range d.Taints {
		keys = append(keys, t.Key)
	}
	slices.SortFunc(meant, func(a, b *v1alpha1.ResourceSlicePatch) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range meant {
		for _, t := range p.Spec.Devices.Taints {
			keys = append(keys, t.Key)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.rules)) {
		if r := o.rules[name]; !o.writtenForPatch(r) && selects(r.Spec.DeviceSelector, s, d.Name) {
			keys = append(keys, r.Spec.Taint.Key)
		}
	}
	return keys
}

// answer is what a patch says to a device.
type answer int

const (
	no answer = iota
	yes
	fails
)

func (o objects) answer(p *v1alpha1.ResourceSlicePatch, s *resourcev1.ResourceSlice, d *resourcev1.Device) answer {
	if !valid(p) {
		return no
	}
	f := p.Spec.Devices.Filter
	if f == nil {
		return yes
	}
	if !selects(&resourcev1.DeviceTaintSelector{Driver: f.Driver, Pool: f.Pool, Device: f.Device}, s, d.Name) {
		return no
	}
	var all []string
	if f.DeviceClassName != nil {
		class := o.classes[*f.DeviceClassName]
		if class == nil {
			return no
		}
		for _, selector := range class.Spec.Selectors {
			all = append(all, selector.CEL.Expression)
		}
	}
	for _, selector := range f.Selectors {
		all = append(all, selector.CEL.Expression)
	}
	for _, expression := range all {
		if a := expressions[expression](s.Spec.Driver, plain(s.Spec.Driver, d)); a != yes {
			return a
		}
	}
	return yes
}

func valid(p *v1alpha1.ResourceSlicePatch) bool {
	for name := range p.Spec.Devices.Attributes {
		if !strings.Contains(string(name), "/") {
			return false
		}
	}
	return true
}

// writtenForPatch reports whether the taint of the rule is that of a patch that is there.
func (o objects) writtenForPatch(r *resourcev1.DeviceTaintRule) bool {
	for _, p := range o.patches {
		if valid(p) && r.Labels[v1alpha1.LabelPatch] == string(p.UID) && len(r.OwnerReferences) > 0 {
			return true
		}
	}
	return false
}

// expressions are those that the model knows, and what they mean.
var expressions = map[string]func(driver string, d map[string]string) answer{
	`device.driver == "e"`: func(driver string, _ map[string]string) answer { return truth(driver == "e") },
	`"n" in device.attributes[device.driver]`: func(driver string, d map[string]string) answer {
		_, found := d["a "+driver+"/n"]
		return truth(found)
	},
	`device.attributes["d"].n == 1`: func(_ string, d map[string]string) answer { return equals(d, "a d/n", "1") },
	`device.attributes[device.driver].n == 2`: func(driver string, d map[string]string) answer {
		return equals(d, "a "+driver+"/n", "2")
	},
	`device.attributes["x"].a == 1`: func(_ string, d map[string]string) answer { return equals(d, "a x/a", "1") },
	`device.capacity[device.driver].c.compareTo(quantity("1")) == 0`: func(driver string, d map[string]string) answer {
		return equals(d, "c "+driver+"/c", "1")
	},
	`device.attributes[device.driver].model`: func(string, map[string]string) answer { return fails },
	`[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, a + b + c + d > 0))))`: func(string, map[string]string) answer {
		return fails // it costs too much
	},
}

func truth(b bool) answer {
	if b {
		return yes
	}
	return no
}

func equals(d map[string]string, name, want string) answer {
	value, found := d[name]
	if !found {
		return fails
	}
	return truth(value == want)
}

// plain returns the attributes that are numbers and the capacities of a device, by kind
// and full name.
func plain(driver string, d *resourcev1.Device) map[string]string {
	full := func(name resourcev1.QualifiedName) string {
		if strings.Contains(string(name), "/") {
			return string(name)
		}
		return driver + "/" + string(name)
	}
	found := map[string]string{}
	for name, value := range d.Attributes {
		if value.IntValue != nil {
			found["a "+full(name)] = strconv.FormatInt(*value.IntValue, 10)
		} else {
			found["a "+full(name)] = *value.StringValue
		}
	}
	for name, value := range d.Capacity {
		found["c "+full(name)] = strconv.FormatInt(value.Value.Value(), 10)
	}
	return found
}

func written(name string, values map[string]string, taints []string) string {
	words := []string{name}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		words = append(words, key+"="+values[key])
	}
	return strings.Join(append(words, taints...), " ")
}

// shown describes slices as expected does.
func shown(list []*resourcev1.ResourceSlice) map[string][]string {
	found := map[string][]string{}
	for _, s := range list {
		devices := []string{}
		for i := range s.Spec.Devices {
			d := &s.Spec.Devices[i]
			var keys []string
			for _, t := range d.Taints {
				keys = append(keys, t.Key)
			}
			devices = append(devices, written(d.Name, plain(s.Spec.Driver, d), keys))
		}
		found[s.Name] = devices
	}
	return found
}
