package plugins

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

func patchesSlice(name string, models ...string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourcev1.ResourceSliceSpec{Driver: driver, Pool: resourcev1.ResourcePool{Name: name}},
	}
	for i, model := range models {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name:       fmt.Sprint("gpu-", i),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: new(model)}},
		})
	}
	return s
}

func patchesPatch(name string, change func(*v1alpha1.DevicePatch)) *v1alpha1.ResourceSlicePatch {
	p := &v1alpha1.ResourceSlicePatch{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec: v1alpha1.ResourceSlicePatchSpec{Devices: v1alpha1.DevicePatch{
			Filter: &v1alpha1.DevicePatchFilter{},
			Attributes: map[resourcev1.QualifiedName]v1alpha1.NullableDeviceAttribute{
				"example.com/by": {StringValue: new(name)},
			},
		}},
	}
	change(&p.Spec.Devices)
	return p
}

func ofModel(model string) []v1alpha1.PatchedDeviceSelector {
	return []v1alpha1.PatchedDeviceSelector{{CEL: &v1alpha1.CELDeviceSelector{
		Expression: fmt.Sprintf("device.attributes[%q].model == %q", driver, model),
	}}}
}

func patchesClass(name, version, model string) *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: version},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes[%q].model == %q", driver, model),
		}}}},
	}
}

func noClass(string) *resourcev1.DeviceClass { return nil }

// by is which patch each device has its attribute from.
func by(s *resourcev1.ResourceSlice) []string {
	var names []string
	for i := range s.Spec.Devices {
		names = append(names, ptr.Deref(s.Spec.Devices[i].Attributes["example.com/by"].StringValue, ""))
	}
	return names
}

func TestSetAppliesPatches(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		patches []*v1alpha1.ResourceSlicePatch
		want    []string
	}{
		"without a filter to every device": {
			patches: []*v1alpha1.ResourceSlicePatch{patchesPatch("a", func(d *v1alpha1.DevicePatch) { d.Filter = nil })},
			want:    []string{"a", "a"},
		},
		"by driver, pool and device": {
			patches: []*v1alpha1.ResourceSlicePatch{patchesPatch("a", func(d *v1alpha1.DevicePatch) {
				d.Filter.Driver, d.Filter.Pool, d.Filter.Device = new(driver), new("pool"), new("gpu-1")
			})},
			want: []string{"", "a"},
		},
		"not to another pool": {
			patches: []*v1alpha1.ResourceSlicePatch{patchesPatch("a", func(d *v1alpha1.DevicePatch) { d.Filter.Pool = new("other") })},
			want:    []string{"", ""},
		},
		"by an expression": {
			patches: []*v1alpha1.ResourceSlicePatch{patchesPatch("a", func(d *v1alpha1.DevicePatch) { d.Filter.Selectors = ofModel("A100") })},
			want:    []string{"a", ""},
		},
		"not where the expression fails": {
			patches: []*v1alpha1.ResourceSlicePatch{patchesPatch("a", func(d *v1alpha1.DevicePatch) {
				d.Filter.Selectors = []v1alpha1.PatchedDeviceSelector{{CEL: &v1alpha1.CELDeviceSelector{
					Expression: fmt.Sprintf("device.attributes[%q].absent == 'x'", driver),
				}}}
			})},
			want: []string{"", ""},
		},
		"by a class that there is": {
			patches: []*v1alpha1.ResourceSlicePatch{patchesPatch("a", func(d *v1alpha1.DevicePatch) { d.Filter.DeviceClassName = new("h100") })},
			want:    []string{"", "a"},
		},
		"not by a class that there is not": {
			patches: []*v1alpha1.ResourceSlicePatch{patchesPatch("a", func(d *v1alpha1.DevicePatch) { d.Filter.DeviceClassName = new("absent") })},
			want:    []string{"", ""},
		},
		"by priority where several match": {
			patches: []*v1alpha1.ResourceSlicePatch{
				patchesPatch("a", func(*v1alpha1.DevicePatch) {}),
				patchesPatch("b", func(d *v1alpha1.DevicePatch) { d.Priority, d.Filter.Selectors = 1, ofModel("A100") }),
			},
			want: []string{"b", "a"},
		},
		"but not one that is not valid": {
			patches: []*v1alpha1.ResourceSlicePatch{patchesPatch("a", func(d *v1alpha1.DevicePatch) {
				d.Attributes["example.com/by"] = v1alpha1.NullableDeviceAttribute{}
			})},
			want: []string{"", ""},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			published := patchesSlice("pool", "A100", "H100")
			copied := published.DeepCopy()
			set := compilePatches(test.patches, func(name string) *resourcev1.DeviceClass {
				if name == "h100" {
					return patchesClass(name, "1", "H100")
				}
				return nil
			}, nil)
			patched := set.Apply(published, sliceview.Patched{}).Slice
			require.Equal(t, test.want, by(patched))
			require.Equal(t, copied, published, "what is published is not changed")
			if slices.Equal(test.want, []string{"", ""}) {
				require.Same(t, published, patched)
			}
		})
	}
}

func TestSetAddsTaints(t *testing.T) {
	t.Parallel()
	published := patchesSlice("pool", "A100")
	published.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "of-rule", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
	set := compilePatches([]*v1alpha1.ResourceSlicePatch{patchesPatch("a", func(d *v1alpha1.DevicePatch) {
		d.Taints = []v1alpha1.PatchedTaint{{Key: "example.com/hot", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
	})}, noClass, nil)
	var keys []string
	for _, taint := range set.Apply(published, sliceview.Patched{}).Slice.Spec.Devices[0].Taints {
		keys = append(keys, taint.Key)
	}
	require.Equal(t, []string{"of-rule", "example.com/hot"}, keys)
}

// What a set makes of a slice depends on neither what came before nor the order of the
// patches: it is what policy/slicepatch makes of each device with the patches that match.
func TestModelOfSet(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	maybe := func(of ...string) *string {
		if random.IntN(2) == 0 {
			return nil
		}
		return new(pick(of...))
	}
	var (
		set     patchSet
		patches = map[string]*v1alpha1.ResourceSlicePatch{}
		classes = map[string]*resourcev1.DeviceClass{}
		earlier = map[string]sliceview.Patched{}
		// Compiling is what takes time.
		compiled = map[*v1alpha1.ResourceSlicePatch]*slicepatch.Patch{}
	)
	for step := range 400 {
		name := pick("a", "b", "c", "d", "e")
		switch random.IntN(6) {
		case 0:
			delete(patches, name)
		case 1, 2:
			patches[name] = patchesPatch(name, func(d *v1alpha1.DevicePatch) {
				d.Priority = random.Int32N(3)
				d.Filter.Driver, d.Filter.Pool, d.Filter.Device = maybe(driver, "other.example.com"), maybe("one", "two"), maybe("gpu-0", "gpu-1")
				d.Filter.DeviceClassName = maybe("fast", "slow")
				if random.IntN(2) == 0 {
					d.Filter.Selectors = ofModel(pick("A100", "H100"))
				}
			})
			patches[name].Generation = int64(step)
			patches[name].CreationTimestamp = metav1.NewTime(time.Unix(random.Int64N(3), 0))
			var errs field.ErrorList
			compiled[patches[name]], errs = slicepatch.Compile(patches[name], nil)
			require.Empty(t, errs)
		case 3:
			classes[pick("fast", "slow")] = patchesClass("fast", strconv.Itoa(step), pick("A100", "H100"))
		case 4:
			delete(classes, pick("fast", "slow"))
		default:
		}
		objects := make([]*v1alpha1.ResourceSlicePatch, 0, len(patches))
		for _, patch := range patches {
			objects = append(objects, patch)
		}
		find := func(name string) *resourcev1.DeviceClass { return classes[name] }
		set = compilePatches(objects, find, set)
		for _, pool := range []string{"one", "two"} {
			published := patchesSlice(pool, pick("A100", "H100"), pick("A100", "H100"))
			earlier[pool] = set.Apply(published, earlier[pool])
			require.Equal(t, naive(t, published, objects, compiled, find), earlier[pool].Slice, "step %d", step)
		}
	}
}

func naive(t *testing.T, published *resourcev1.ResourceSlice, objects []*v1alpha1.ResourceSlicePatch, compiled map[*v1alpha1.ResourceSlicePatch]*slicepatch.Patch, class findClass) *resourcev1.ResourceSlice {
	t.Helper()
	result := published.DeepCopy()
	for i := range published.Spec.Devices {
		device := &published.Spec.Devices[i]
		var matching []*slicepatch.Patch
		for _, object := range objects {
			compiled := compiled[object]
			asked := compiled.Filter.Names
			if ptr.Deref(asked.Driver, driver) != driver || ptr.Deref(asked.Pool, published.Name) != published.Name ||
				ptr.Deref(asked.Device, device.Name) != device.Name {
				continue
			}
			var of *slicepatch.Class
			if found := class(compiled.Filter.Class); found != nil {
				of = slicepatch.CompileClass(found)
			}
			alone := slicepatch.See(&resourcev1.ResourceSliceSpec{Driver: driver, Devices: []resourcev1.Device{*device}})
			compiled.Filter.Ask(of, alone, nil, func(_ int, satisfied bool, err error) {
				if err == nil && satisfied {
					matching = append(matching, compiled)
				}
			})
		}
		slices.SortFunc(matching, slicepatch.Compare)
		patched, err := slicepatch.Combine(matching).Apply(driver, device)
		require.NoError(t, err)
		result.Spec.Devices[i] = patched
	}
	return result
}
