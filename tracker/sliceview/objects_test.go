package sliceview_test

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// slice is a ResourceSlice of driver d and pool p, unless options say otherwise.
func slice(name string, options ...func(*resourcev1.ResourceSlice)) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")}}
	s.Spec.Driver = "d"
	s.Spec.Pool = resourcev1.ResourcePool{Name: "p", Generation: 1, ResourceSliceCount: 1}
	for _, option := range options {
		option(s)
	}
	return s
}

func in(driver, pool string) func(*resourcev1.ResourceSlice) {
	return func(s *resourcev1.ResourceSlice) { s.Spec.Driver, s.Spec.Pool.Name = driver, pool }
}

func generation(number int64) func(*resourcev1.ResourceSlice) {
	return func(s *resourcev1.ResourceSlice) { s.Spec.Pool.Generation = number }
}

func dev(name string, taints ...resourcev1.DeviceTaint) func(*resourcev1.ResourceSlice) {
	return func(s *resourcev1.ResourceSlice) {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name: name, Taints: taints,
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: new(name)}},
		})
	}
}

func uid(id types.UID) func(*resourcev1.ResourceSlice) {
	return func(s *resourcev1.ResourceSlice) { s.UID = id }
}

func labelled(key, value string) func(*resourcev1.ResourceSlice) {
	return func(s *resourcev1.ResourceSlice) { s.Labels = map[string]string{key: value} }
}

// taint is a NoExecute taint since the start.
func taint(key string) resourcev1.DeviceTaint {
	return resourcev1.DeviceTaint{Key: key, Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.NewTime(start))}
}

// rule taints the devices under a selector with a key that is its own name.
func rule(name string, selector *resourcev1.DeviceTaintSelector) *resourcev1.DeviceTaintRule {
	return ruleWith(name, selector, taint(name))
}

func ruleWith(name string, selector *resourcev1.DeviceTaintSelector, taint resourcev1.DeviceTaint) *resourcev1.DeviceTaintRule {
	return &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")},
		Spec:       resourcev1.DeviceTaintRuleSpec{DeviceSelector: selector, Taint: taint},
	}
}

func every() *resourcev1.DeviceTaintSelector { return &resourcev1.DeviceTaintSelector{} }

// only is a selector that asks for the names that are not "-".
func only(driver, pool, device string) *resourcev1.DeviceTaintSelector {
	name := func(s string) *string {
		if s == "-" {
			return nil
		}
		return &s
	}
	return &resourcev1.DeviceTaintSelector{Driver: name(driver), Pool: name(pool), Device: name(device)}
}

// described is what tests compare: each device of a slice as its name and the keys
// of its taints, in order.
func described(s *resourcev1.ResourceSlice) []string {
	var devices []string
	for _, d := range s.Spec.Devices {
		words := []string{d.Name}
		for _, t := range d.Taints {
			words = append(words, t.Key)
		}
		devices = append(devices, strings.Join(words, " "))
	}
	return devices
}

// contents describes slices by name.
func contents(slices []*resourcev1.ResourceSlice) map[string][]string {
	found := map[string][]string{}
	for _, s := range slices {
		found[s.Name] = described(s)
	}
	return found
}
