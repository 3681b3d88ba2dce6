package slicepatch

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
)

func TestSatisfies(t *testing.T) {
	t.Parallel()
	const a100 = `device.attributes['gpu.example.com'].model == 'A100'`
	published := deviceWith(t, `
attributes: {model: {string: A100}, other.example.com/n: {int: 2}}
capacity: {memory: {value: 80Gi}}`)
	tests := map[string]struct {
		filter string
		class  *Class
		want   bool
		err    string
	}{
		"no filter is for every device":           {filter: `{}`, want: true},
		"an empty filter is for every device":     {filter: `filter: {}`, want: true},
		"names are for the caller":                {filter: `filter: {driver: other}`, want: true},
		"an expression that holds":                {filter: by(a100), want: true},
		"an expression that does not":             {filter: by(`device.attributes['gpu.example.com'].model == 'H100'`)},
		"all expressions have to hold":            {filter: by(a100, `device.capacity['gpu.example.com'].memory.isLessThan(quantity('1Gi'))`)},
		"a name has the domain of the driver":     {filter: by(`'model' in device.attributes['gpu.example.com'] && device.driver == 'gpu.example.com'`), want: true},
		"an expression fails":                     {filter: by(`device.attributes['gpu.example.com'].rack == 1`), err: "selectors[0]: no such key: rack"},
		"what comes after a no cannot fail":       {filter: by(`false`, `device.attributes['gpu.example.com'].rack == 1`)},
		"what comes before a no can":              {filter: by(`device.attributes['gpu.example.com'].rack == 1`, `false`), err: "selectors[0]: no such key: rack"},
		"an expression is no truth value at last": {filter: by(`device.attributes['gpu.example.com'].model`), err: "selectors[0]: CEL result of type string"},
		"a class that selects":                    {filter: `filter: {deviceClassName: c}`, class: classWith(`true`, a100), want: true},
		"a class that does not":                   {filter: `filter: {deviceClassName: c}`, class: classWith(`true`, `false`)},
		"a class of every device":                 {filter: `filter: {deviceClassName: c}`, class: classWith(), want: true},
		"there is no class":                       {filter: `filter: {deviceClassName: c}`},
		"a class fails":                           {filter: `filter: {deviceClassName: c}`, class: classWith(`device.attributes['x'].y`), err: "device class c: selectors[0]: no such key: y"},
		"a class does not compile":                {filter: `filter: {deviceClassName: c}`, class: classWith(`device.`), err: "device class c: selectors[0]: line 1, column 8: Syntax error"},
		"a class selects by what is not known": {
			filter: `filter: {deviceClassName: c}`, err: "device class c: selectors[0]: selects by something other than cel",
			class: CompileClass(&resourcev1.DeviceClass{Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{}}}}),
		},
		"a class explodes": {filter: `filter: {deviceClassName: c}`, class: classWith(explosion(6)), err: "device class c: selectors[0]: costs more than the 10000"},
		"a class leaves too little": {
			filter: `filter: {deviceClassName: c, selectors: [{cel: {expression: "` + explosion(3) + `"}}]}`,
			class:  classWith(explosion(3)), err: "selectors[0]: costs more than the 10000",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			filter := compiled(t, "p", tt.filter).Filter
			got, err := filter.satisfies(tt.class, "gpu.example.com", published)
			require.Equal(t, tt.want, got)
			if tt.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.err)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// by returns a filter by expressions.
func by(expressions ...string) string {
	quoted := make([]string, 0, len(expressions))
	for _, e := range expressions {
		quoted = append(quoted, `{cel: {expression: "`+e+`"}}`)
	}
	return `filter: {selectors: [` + strings.Join(quoted, ",") + `]}`
}

func TestConditional(t *testing.T) {
	t.Parallel()
	require.False(t, compiled(t, "p", `filter: {driver: a, pool: b, device: c}`).Filter.Conditional())
	require.True(t, compiled(t, "p", `filter: {deviceClassName: a}`).Filter.Conditional())
	require.True(t, compiled(t, "p", by("true")).Filter.Conditional())
}

func TestSameToFilters(t *testing.T) {
	t.Parallel()
	one := `{attributes: {a: {int: 1}}, capacity: {c: {value: 1Gi}}}`
	for other, want := range map[string]bool{
		one: true,
		`{attributes: {a: {int: 1}}, capacity: {c: {value: 1024Mi}}}`:                                true,
		`{attributes: {a: {int: 1}}, capacity: {c: {value: 1Gi}}, taints: [{key: a, effect: None}]}`: true,
		`{attributes: {a: {int: 2}}, capacity: {c: {value: 1Gi}}}`:                                   false,
		`{attributes: {a: {int: 1}}, capacity: {c: {value: 2Gi}}}`:                                   false,
		`{attributes: {a: {int: 1}}, capacity: {c: {value: 1Gi}}, allowMultipleAllocations: true}`:   false,
		`{name: b, attributes: {a: {int: 1}}, capacity: {c: {value: 1Gi}}}`:                          false,
	} {
		require.Equal(t, want, SameToFilters(deviceWith(t, one), deviceWith(t, other)), other)
	}
}

// Whoever may write a patch must not be able to keep the tracker busy.
func TestWhatExplodesCostsBoundedTime(t *testing.T) {
	t.Parallel()
	class := classWith(explosion(9)) // a thousand million rounds
	filter := compiled(t, "p", `filter: {deviceClassName: c}`).Filter
	for range 8 {
		_, err := filter.satisfies(class, "d", &resourcev1.Device{})
		require.ErrorContains(t, err, "costs more than")
	}
}
