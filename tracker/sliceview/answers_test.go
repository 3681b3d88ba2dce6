package sliceview

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// What was found out is kept as long as it holds: a verdict that is the same one as
// before was not asked for again.
func TestAnswersAreKept(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		event func(*View)
		// asked are the slices whose devices are asked about again.
		asked []string
	}{
		"nothing happens":   {event: func(*View) {}},
		"a rule comes":      {event: func(v *View) { v.SetRule(everyDevice("r")) }},
		"another patch":     {event: func(v *View) { v.SetPatch(asking("q", "true", 1)) }},
		"another slice":     {event: func(v *View) { v.SetSlice(oneDevice("u", 1)) }},
		"another class":     {event: func(v *View) { v.SetClass(classOf("d", "true")) }},
		"other values":      {event: func(v *View) { v.SetPatch(asking("p", "device.driver == 'd'", 2)) }},
		"another filter":    {event: func(v *View) { v.SetPatch(asking("p", "device.driver != 'e'", 1)) }, asked: []string{"s", "t"}},
		"the class changes": {event: func(v *View) { v.SetClass(classOf("c", "true", "true")) }, asked: []string{"s", "t"}},
		"the class is written and selects the same": {event: func(v *View) { v.SetClass(classOf("c", "true")) }},
		"a slice has other devices":                 {event: func(v *View) { v.SetSlice(oneDevice("s", 2)) }, asked: []string{"s"}},
		"a driver writes the same devices":          {event: func(v *View) { v.SetSlice(oneDevice("s", 1)) }},
		"a driver taints its device": {event: func(v *View) {
			s := oneDevice("s", 1)
			s.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "a", Effect: "NoExecute"}}
			v.SetSlice(s)
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := New()
			v.SetClass(classOf("c", "true"))
			v.SetPatch(asking("p", "device.driver == 'd'", 1))
			v.SetSlice(oneDevice("s", 1))
			v.SetSlice(oneDevice("t", 1))
			before := answers(v)
			for name, e := range v.slices.byName {
				// Slices share verdicts: each gets one of its own, which only it has.
				copied := *before[name]
				before[name] = &copied
				e.verdicts[v.patches.byName["p"].question] = &copied
			}
			require.Len(t, before, 2)
			tt.event(v)
			after := answers(v)
			for _, name := range []string{"s", "t"} {
				require.Len(t, v.slices.byName[name].verdicts, len(v.patches.byName), "answers to what is not asked any more are kept")
				if before[name] == after[name] {
					require.NotContains(t, tt.asked, name)
				} else {
					require.Contains(t, tt.asked, name)
				}
			}
			v.DeletePatch("p")
			v.DeletePatch("q")
			for name, e := range v.slices.byName {
				require.Nil(t, e.verdicts, name)
			}
		})
	}
}

// answers returns what patch p says about the slices.
func answers(v *View) map[string]*verdict {
	v.List()
	found := map[string]*verdict{}
	for name, e := range v.slices.byName {
		found[name] = e.verdict(v.patches.byName["p"])
	}
	return found
}

func asking(name, expression string, value int64) *v1alpha1.ResourceSlicePatch {
	p := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Devices = v1alpha1.DevicePatch{
		Filter: &v1alpha1.DevicePatchFilter{
			DeviceClassName: new("c"),
			Selectors:       []v1alpha1.PatchedDeviceSelector{{CEL: &v1alpha1.CELDeviceSelector{Expression: expression}}},
		},
		Attributes: map[resourcev1.QualifiedName]v1alpha1.NullableDeviceAttribute{"x/a": {IntValue: &value}},
	}
	return p
}

func classOf(name string, expressions ...string) *resourcev1.DeviceClass {
	c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, e := range expressions {
		c.Spec.Selectors = append(c.Spec.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: e}})
	}
	return c
}

func oneDevice(name string, n int64) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.Driver, s.Spec.Pool.Name = "d", name
	s.Spec.Devices = []resourcev1.Device{{
		Name: "gpu-0", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"n": {IntValue: &n}},
	}}
	return s
}

func everyDevice(name string) *resourcev1.DeviceTaintRule {
	r := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.Spec.DeviceSelector, r.Spec.Taint = &resourcev1.DeviceTaintSelector{}, resourcev1.DeviceTaint{Key: "a", Effect: "None"}
	return r
}
