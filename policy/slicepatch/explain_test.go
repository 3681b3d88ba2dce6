package slicepatch

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		device string
		// patches are a, b and so on.
		patches []string
		want    []string
		limited string
	}{
		"what no patch speaks of is the driver's": {
			`{attributes: {model: {string: A}}, capacity: {memory: {value: 8Gi}}, taints: [{key: own, effect: None}]}`, nil,
			[]string{"model=A", "memory:8Gi", "own by driver"},
			"",
		},
		"a patch says what it replaced": {
			`{attributes: {model: {string: A}}}`,
			[]string{`{attributes: {d.example.com/model: {string: B}}}`},
			[]string{"model=B by a, was A"},
			"",
		},
		"a patch says what it added": {
			`{}`, []string{`{attributes: {example.com/rack: {string: "7"}}}`}, []string{"example.com/rack=7 by a"}, "",
		},
		"a patch says what it removed": {
			`{attributes: {model: {string: A}}}`,
			[]string{`{attributes: {d.example.com/model: {"null": {}}}}`},
			[]string{"model removed by a, was A"},
			"",
		},
		"what never was is not removed": {
			`{}`, []string{`{attributes: {d.example.com/model: {"null": {}}}}`}, nil, "",
		},
		"a patch decides also if it says what was published": {
			`{attributes: {model: {string: A}}}`,
			[]string{`{attributes: {d.example.com/model: {string: A}}}`},
			[]string{"model=A by a, was A"},
			"",
		},
		"patches that were overruled are named with what they have": {
			`{capacity: {memory: {value: 80Gi}}}`,
			[]string{
				`{capacity: {d.example.com/memory: {value: 32Gi}}}`, `{attributes: {d.example.com/memory: {int: 1}}}`, `{capacity: {d.example.com/memory: {value: 16Gi}}}`,
			},
			[]string{"d.example.com/memory=1 by b", "memory:32Gi by a, was 80Gi, not 16Gi by c"},
			"",
		},
		"a removal can be overruled": {
			`{attributes: {model: {string: A}}}`,
			[]string{`{attributes: {d.example.com/model: {string: B}}}`, `{attributes: {d.example.com/model: {"null": {}}}}`},
			[]string{"model=B by a, was A, not removed by b"},
			"",
		},
		"of two names of one thing the short one is removed": {
			`{attributes: {d.example.com/model: {string: A}, model: {string: C}}}`,
			[]string{`{attributes: {d.example.com/model: {string: B}}}`},
			[]string{"d.example.com/model=B by a, was A", "model removed by a, was C"},
			"",
		},
		"taints have their patches": {
			`{taints: [{key: own, effect: None}]}`,
			[]string{`{taints: [{key: x, effect: None}, {key: x, effect: NoSchedule}]}`, `{}`, `{taints: [{key: x, effect: None}]}`},
			[]string{"own by driver", "x by a", "x by a", "x by c"},
			"",
		},
		"beyond a limit all is the driver's, but for taints": {
			`{attributes: {a: {int: 1}}}`,
			[]string{`{attributes: {d.example.com/a: {int: 2}, ` + many(31) + `}}`, `{attributes: {example.com/z: {int: 1}}, taints: [{key: x, effect: None}]}`},
			[]string{"a=1", "x by b"},
			"would have 33 attributes and capacities, of which 32 are allowed",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var patches []*Patch
			for i, devices := range tt.patches {
				patches = append(patches, compiled(t, string(rune('a'+i)), devices))
			}
			e := Explain(patches, "d.example.com", deviceWith(t, tt.device))
			require.Equal(t, tt.want, said(&e))
			if tt.limited == "" {
				require.NoError(t, e.Limited)
			} else {
				require.EqualError(t, e.Limited, tt.limited)
			}
		})
	}
}

// said describes an explanation in the order of its lists.
func said(e *Explanation) []string {
	var lines []string
	for _, v := range e.Attributes {
		lines = append(lines, sentence(v, "=", func(a *resourcev1.DeviceAttribute) string {
			if a.StringValue != nil {
				return *a.StringValue
			}
			return strconv.FormatInt(*a.IntValue, 10)
		}))
	}
	for _, v := range e.Capacity {
		lines = append(lines, sentence(v, ":", func(c *resourcev1.DeviceCapacity) string { return c.Value.String() }))
	}
	for i, patch := range e.Taints {
		if patch == "" {
			patch = "driver"
		}
		lines = append(lines, e.Device.Taints[i].Key+" by "+patch)
	}
	return lines
}

func sentence[V any](v Value[V], sign string, text func(*V) string) string {
	value := func(value *V, sign string) string {
		if value == nil {
			return " removed"
		}
		return sign + text(value)
	}
	said := string(v.Name) + value(v.Now, sign)
	if v.Patch != "" {
		said += " by " + v.Patch
	}
	parts := []string{said}
	if v.Patch != "" && v.Published != nil {
		parts = append(parts, "was"+value(v.Published, " "))
	}
	for _, o := range v.Overruled {
		parts = append(parts, "not"+value(o.Value, " ")+" by "+o.Patch)
	}
	return strings.Join(parts, ", ")
}

// TestExplanationsHold takes the word of explanations for it: what they say the device
// has is what it gets, and without the patch that decided the next one's value comes up.
func TestExplanationsHold(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	decided, overruled := 0, 0
	for range 500 {
		published := namedDevice(random)
		var patches []*Patch
		for i := range random.IntN(6) {
			p, errs := Compile(namedPatch(random, string(rune('a'+i))), nil)
			require.Empty(t, errs)
			patches = append(patches, p)
		}
		slices.SortFunc(patches, Compare)
		e := Explain(patches, "d", published)
		got, err := Combine(patches).Apply("d", published)
		require.Equal(t, err, e.Limited)
		require.Equal(t, written(t, got), written(t, restored(published, &e)))
		require.Equal(t, written(t, got.Taints), written(t, taintsSaid(published, patches, e.Taints)))
		for _, v := range e.Attributes {
			d, o := requireOffer(t, patches, v, func(rest []*Patch) map[name]resourcev1.DeviceAttribute {
				return Explain(rest, "d", published).Device.Attributes
			})
			decided, overruled = decided+d, overruled+o
		}
		for _, v := range e.Capacity {
			requireOffer(t, patches, v, func(rest []*Patch) map[name]resourcev1.DeviceCapacity {
				return Explain(rest, "d", published).Device.Capacity
			})
		}
	}
	require.Greater(t, decided, 200)
	require.Greater(t, overruled, 50)
}

// restored is the device that an explanation describes.
func restored(published *resourcev1.Device, e *Explanation) resourcev1.Device {
	d := *published
	d.Taints = e.Device.Taints
	if published.Attributes != nil || len(e.Attributes) > 0 {
		d.Attributes = attributes{}
	}
	if published.Capacity != nil || len(e.Capacity) > 0 {
		d.Capacity = capacities{}
	}
	for _, v := range e.Attributes {
		if v.Now != nil {
			d.Attributes[v.Name] = *v.Now
		}
	}
	for _, v := range e.Capacity {
		if v.Now != nil {
			d.Capacity[v.Name] = *v.Now
		}
	}
	return d
}

// taintsSaid are the taints of those who are said to have them, one after the other.
func taintsSaid(published *resourcev1.Device, patches []*Patch, by []string) []resourcev1.DeviceTaint {
	var taints []resourcev1.DeviceTaint
	next := map[string]int{}
	for _, who := range by {
		from := published.Taints
		if at := slices.IndexFunc(patches, func(p *Patch) bool { return p.Name == who }); at >= 0 {
			from = patches[at].taints
		}
		taints = append(taints, from[next[who]])
		next[who]++
	}
	return taints
}

// requireOffer takes out the patch that decided about a name.
func requireOffer[V any](t *testing.T, patches []*Patch, v Value[V], without func([]*Patch) map[name]V) (decided, overruled int) {
	t.Helper()
	if v.Patch == "" {
		require.Empty(t, v.Overruled)
		require.Equal(t, v.Published, v.Now)
		return 0, 0
	}
	rest := slices.DeleteFunc(slices.Clone(patches), func(p *Patch) bool { return p.Name == v.Patch })
	after := without(rest)
	if len(v.Overruled) == 0 {
		require.Equal(t, written(t, v.Published), written(t, entry(after, v.Name)), "%s without %s", v.Name, v.Patch)
		return 1, 0
	}
	// It may be there under either of its names.
	found := cmp.Or(entry(after, full(v.Name, "d")), entry(after, name(strings.TrimPrefix(string(v.Name), "d/"))))
	require.Equal(t, written(t, v.Overruled[0].Value), written(t, found), "%s without %s", v.Name, v.Patch)
	return 1, 1
}

func namedDevice(random *rand.Rand) *resourcev1.Device {
	d := &resourcev1.Device{Name: "gpu-0", AllowMultipleAllocations: new(true), Attributes: attributes{}, Capacity: capacities{}}
	for _, name := range []name{"a", "d/a", "d/b", "x/a", "x/b"} {
		if random.IntN(2) == 0 {
			d.Attributes[name] = resourcev1.DeviceAttribute{IntValue: new(random.Int64N(3))}
		}
		if random.IntN(2) == 0 {
			d.Capacity[name] = resourcev1.DeviceCapacity{Value: *resource.NewQuantity(random.Int64N(3), resource.DecimalSI)}
		}
	}
	for i := range random.IntN(3) {
		d.Taints = append(d.Taints, resourcev1.DeviceTaint{Key: fmt.Sprintf("own-%d", i), Effect: resourcev1.DeviceTaintEffectNone})
	}
	return d
}

func namedPatch(random *rand.Rand, name string) *v1alpha1.ResourceSlicePatch {
	p := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.NewTime(start.Add(time.Duration(random.IntN(2)) * time.Second)),
	}}
	spec := &p.Spec.Devices
	spec.Priority = random.Int32N(2)
	spec.Attributes = map[resourcev1.QualifiedName]v1alpha1.NullableDeviceAttribute{}
	spec.Capacity = map[resourcev1.QualifiedName]v1alpha1.PatchedCapacity{}
	for _, name := range []resourcev1.QualifiedName{"d/a", "d/b", "x/a", "x/b", "x/c"} {
		switch random.IntN(4) {
		case 0:
			spec.Attributes[name] = v1alpha1.NullableDeviceAttribute{IntValue: new(random.Int64N(3))}
		case 1:
			spec.Attributes[name] = v1alpha1.NullableDeviceAttribute{NullValue: &v1alpha1.NullValue{}}
		case 2:
			spec.Capacity[name] = v1alpha1.PatchedCapacity{Value: resource.NewQuantity(random.Int64N(3), resource.DecimalSI)}
		}
	}
	for i := range random.IntN(3) {
		spec.Taints = append(spec.Taints, v1alpha1.PatchedTaint{Key: fmt.Sprintf("%s-%d", name, i), Effect: resourcev1.DeviceTaintEffectNoSchedule})
	}
	return p
}

// entry returns the value of a name, nil for none.
func entry[V any](values map[name]V, of name) *V {
	if value, found := values[of]; found {
		return &value
	}
	return nil
}
