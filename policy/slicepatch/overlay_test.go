package slicepatch

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestApply(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		device  string
		patches []string
		want    string
		err     string
	}{
		"a value is set": {
			`{}`, []string{`{attributes: {example.com/rack: {string: "7"}}}`}, `{attributes: {example.com/rack: {string: "7"}}}`, "",
		},
		"a value is replaced": {
			`{attributes: {example.com/rack: {int: 6}}}`,
			[]string{`{attributes: {example.com/rack: {string: "7"}}}`},
			`{attributes: {example.com/rack: {string: "7"}}}`, "",
		},
		"a value is removed": {
			`{attributes: {example.com/rack: {int: 6}, a: {int: 1}}}`,
			[]string{`{attributes: {example.com/rack: {"null": {}}}}`},
			`{attributes: {a: {int: 1}}}`, "",
		},
		"a bare name has the domain of the driver": {
			`{attributes: {model: {string: A}, gone: {int: 1}}}`,
			[]string{`{attributes: {d.example.com/model: {string: B}, d.example.com/gone: {"null": {}}}}`},
			`{attributes: {model: {string: B}}}`, "",
		},
		"a bare name is nobody else's": {
			`{attributes: {model: {string: A}}}`,
			[]string{`{attributes: {e.example.com/model: {string: B}}}`},
			`{attributes: {model: {string: A}, e.example.com/model: {string: B}}}`, "",
		},
		"a qualified name stays one": {
			`{attributes: {d.example.com/model: {string: A}}}`,
			[]string{`{attributes: {d.example.com/model: {string: B}}}`},
			`{attributes: {d.example.com/model: {string: B}}}`, "",
		},
		"two names of one thing become one": {
			`{attributes: {d.example.com/model: {string: A}, model: {string: C}}}`,
			[]string{`{attributes: {d.example.com/model: {string: B}}}`},
			`{attributes: {d.example.com/model: {string: B}}}`, "",
		},
		"two names of one thing are removed": {
			`{attributes: {d.example.com/model: {string: A}, model: {string: C}}}`,
			[]string{`{attributes: {d.example.com/model: {"null": {}}}}`},
			`{attributes: {}}`, "",
		},
		"the first patch decides about each name": {
			`{attributes: {example.com/c: {int: 0}}}`,
			[]string{
				`{attributes: {example.com/a: {int: 1}}}`, `{attributes: {example.com/a: {int: 2}, example.com/b: {int: 2}, example.com/c: {"null": {}}}}`,
				`{attributes: {example.com/b: {int: 3}, example.com/c: {int: 3}}}`,
			},
			`{attributes: {example.com/a: {int: 1}, example.com/b: {int: 2}}}`, "",
		},
		"a capacity is replaced as a whole": {
			`{allowMultipleAllocations: true, capacity: {memory: {value: 80Gi, requestPolicy: {default: 10Gi}}}}`,
			[]string{`{capacity: {d.example.com/memory: {value: 32Gi}}}`},
			`{allowMultipleAllocations: true, capacity: {memory: {value: 32Gi}}}`, "",
		},
		"a capacity is set with its policy": {
			`{allowMultipleAllocations: true}`,
			[]string{`{capacity: {d.example.com/memory: {value: 32Gi, requestPolicy: {default: 1Gi, validRange: {min: 1Gi}}}}}`},
			`{allowMultipleAllocations: true, capacity: {d.example.com/memory: {value: 32Gi, requestPolicy: {default: 1Gi, validRange: {min: 1Gi}}}}}`, "",
		},
		"a policy needs a device that is shared": {
			`{capacity: {memory: {value: 80Gi}}}`,
			[]string{`{attributes: {example.com/a: {int: 1}}, capacity: {d.example.com/memory: {value: 32Gi, requestPolicy: {default: 1Gi}}}}`},
			`{capacity: {memory: {value: 80Gi}}}`, "capacity d.example.com/memory would have a requestPolicy, which needs allowMultipleAllocations",
		},
		"taints come after those of the driver, by name of the patch": {
			`{taints: [{key: own, effect: None}]}`,
			[]string{`{taints: [{key: a, effect: NoExecute}, {key: a, effect: NoExecute}]}`, `{taints: [{key: b, effect: NoSchedule}]}`},
			`{taints: [{key: own, effect: None}, {key: a, effect: NoExecute}, {key: a, effect: NoExecute}, {key: b, effect: NoSchedule}]}`, "",
		},
		"too many attributes change nothing, and taints are added": {
			`{attributes: {a: {int: 1}}}`,
			[]string{`{attributes: {` + many(32) + `}, taints: [{key: a, effect: NoExecute}]}`},
			`{attributes: {a: {int: 1}}, taints: [{key: a, effect: NoExecute}]}`, "would have 33 attributes and capacities, of which 32 are allowed",
		},
		"attributes and capacity count together": {
			`{capacity: {a: {value: 1}}}`,
			[]string{`{attributes: {` + many(32) + `}}`},
			`{capacity: {a: {value: 1}}}`, "would have 33 attributes and capacities",
		},
		"a patch makes room for another": {
			`{attributes: {a: {int: 1}}}`,
			[]string{`{attributes: {d.example.com/a: {"null": {}}}}`, `{attributes: {` + many(32) + `}}`},
			`{attributes: {` + many(32) + `}}`, "",
		},
		"too many values change nothing": {
			`{attributes: {a: {int: 1}}}`,
			[]string{`{attributes: {example.com/l: {ints: [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}}}`},
			`{attributes: {a: {int: 1}}}`, "would have 49 values of attributes, of which 48 are allowed",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var patches []*Patch
			for i, devices := range tt.patches {
				patches = append(patches, compiled(t, string(rune('a'+i)), devices))
			}
			published, untouched := deviceWith(t, tt.device), deviceWith(t, tt.device)
			got, err := Combine(patches).Apply("d.example.com", published)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, written(t, deviceWith(t, tt.want)), written(t, got))
			require.Equal(t, untouched, published, "what is published was written to")
		})
	}
}

func written(t *testing.T, v any) string {
	t.Helper()
	data, err := yaml.Marshal(v)
	require.NoError(t, err)
	return string(data)
}

func TestApplySharesWhatItDoesNotChange(t *testing.T) {
	t.Parallel()
	published := deviceWith(t, `{attributes: {a: {int: 1}, d/b: {"string": x}}, capacity: {c: {value: 1Gi}}, taints: [{key: own, effect: None}]}`)
	same := Combine([]*Patch{compiled(t, "p", `{attributes: {d/a: {int: 1}, d/b: {string: x}, d/z: {"null": {}}}, capacity: {d/c: {value: 1024Mi}}}`)})
	got, err := same.Apply("d", published)
	require.NoError(t, err)
	require.Equal(t, reflect.ValueOf(published.Attributes).Pointer(), reflect.ValueOf(got.Attributes).Pointer())
	require.Equal(t, reflect.ValueOf(published.Capacity).Pointer(), reflect.ValueOf(got.Capacity).Pointer())
	require.Same(t, &published.Taints[0], &got.Taints[0])

	tainted := Combine([]*Patch{compiled(t, "p", `{taints: [{key: a, effect: None}]}`)})
	got, err = tainted.Apply("d", published)
	require.NoError(t, err)
	require.Equal(t, reflect.ValueOf(published.Attributes).Pointer(), reflect.ValueOf(got.Attributes).Pointer())
}

func TestCompare(t *testing.T) {
	t.Parallel()
	made := func(name string, priority int32, age time.Duration) *Patch {
		p := patch(t, name, `{}`)
		p.Spec.Devices.Priority, p.CreationTimestamp = priority, metav1.NewTime(start.Add(-age))
		compiled, errs := Compile(p, nil)
		require.Empty(t, errs)
		return compiled
	}
	want := []*Patch{made("z", 2, 0), made("y", 1, time.Hour), made("a", 1, time.Minute), made("b", 1, time.Minute), made("a", -1, 2*time.Hour)}
	got := []*Patch{want[3], want[4], want[1], want[2], want[0]}
	slices.SortFunc(got, Compare)
	require.Equal(t, want, got)
}

func TestATaintWithoutATimeHasThatOfStatus(t *testing.T) {
	t.Parallel()
	p := patch(t, "p", `{taints: [{key: a, effect: NoExecute}, {key: b, effect: None, timeAdded: "2026-01-01T00:00:00Z"}, {key: c, effect: None}]}`)
	since := metav1.NewTime(start)
	p.Status.Taints = []v1alpha1.PatchedTaint{
		{Key: "a", Effect: "NoSchedule"}, {Key: "a", Effect: "NoExecute", TimeAdded: &since}, {Key: "b", Effect: "None", TimeAdded: &since},
	}
	compiled, errs := Compile(p, nil)
	require.Empty(t, errs)
	got, err := Combine([]*Patch{compiled}).Apply("d", deviceWith(t, `{}`))
	require.NoError(t, err)
	require.Equal(t, &since, got.Taints[0].TimeAdded)
	require.Equal(t, 2026, got.Taints[1].TimeAdded.Year())
	require.Equal(t, time.January, got.Taints[1].TimeAdded.Month())
	require.Nil(t, got.Taints[2].TimeAdded)
}
