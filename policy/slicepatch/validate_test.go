package slicepatch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestAPatchThatIsNotValidIsRefusedByFieldAndValue(t *testing.T) {
	t.Parallel()
	const long = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" // 33 bytes
	tests := map[string]struct {
		devices string
		want    []string
	}{
		"an empty class": {
			`filter: {deviceClassName: ""}`,
			[]string{`spec.devices.filter.deviceClassName: Required value: an empty name selects nothing: leave the field out to select any`},
		},
		"a class that cannot be": {`filter: {deviceClassName: A b}`, []string{`spec.devices.filter.deviceClassName: Invalid value: "A b": a lowercase RFC 1123`}},
		"an empty driver":        {`filter: {driver: ""}`, []string{`spec.devices.filter.driver: Required value`}},
		"a driver that cannot be": {
			`filter: {driver: a_b}`, []string{`spec.devices.filter.driver: Invalid value: "a_b"`},
		},
		"a driver that is too long": {
			`filter: {driver: ` + long + long + `}`, []string{`spec.devices.filter.driver: Too long: may not be more than 63 bytes`},
		},
		"an empty pool":          {`filter: {pool: ""}`, []string{`spec.devices.filter.pool: Required value`}},
		"a pool that cannot be":  {`filter: {pool: a//b}`, []string{`spec.devices.filter.pool: Invalid value: "a//b"`}},
		"an empty device":        {`filter: {device: ""}`, []string{`spec.devices.filter.device: Required value`}},
		"a device that can't be": {`filter: {device: gpu.0}`, []string{`spec.devices.filter.device: Invalid value: "gpu.0"`}},
		"a selector by nothing": {
			`filter: {selectors: [{}]}`, []string{`spec.devices.filter.selectors[0].cel: Required value: a selector selects by an expression: give cel`},
		},
		"an empty expression": {
			`filter: {selectors: [{cel: {expression: " "}}]}`, []string{`spec.devices.filter.selectors[0].cel.expression: Required value: give an expression about device`},
		},
		"an expression that is too long": {
			`filter: {selectors: [{cel: {expression: "` + strings.Repeat("x", 10241) + `"}}]}`,
			[]string{`spec.devices.filter.selectors[0].cel.expression: Too long: may not be more than 10240 bytes`},
		},
		"an expression with an error has its position": {
			`filter: {selectors: [{cel: {expression: "true"}}, {cel: {expression: "device.driver == 'x' && device.nope"}}]}`,
			[]string{`spec.devices.filter.selectors[1].cel.expression: Invalid value: "device.driver == 'x' && device.nope": line 1, column 31: undefined field 'nope'`},
		},
		"an expression that is no truth value": {
			`filter: {selectors: [{cel: {expression: "1"}}]}`, []string{`must evaluate to bool or the unknown type, not int`},
		},
		"an expression that explodes": {
			`filter: {selectors: [{cel: {expression: "` + explosion(4) + `"}}]}`,
			[]string{`spec.devices.filter.selectors[0].cel.expression: Invalid value`, `of which 10000 are allowed: every device there is will be asked`},
		},
		"expressions that explode together": {
			`filter: {selectors: [` + strings.Repeat(`{cel: {expression: "device.attributes.all(d, device.attributes[d].all(k, k != 'x'))"}},`, 2) + `]}`,
			[]string{`spec.devices.filter.selectors[1].cel.expression: Invalid value`, `costs up to 5379, 10758 with the expressions before it`},
		},
		"an expression that makes a list of a map": {
			`filter: {selectors: [{cel: {expression: 'device.attributes["d"].map(k, k)[0] == "a"'}}]}`,
			[]string{`spec.devices.filter.selectors[0].cel.expression: Invalid value: "device.attributes[\"d\"].map(k, k)[0] == \"a\"": makes a list of what may be a map, whose order is not defined; use has(), in or a name`},
		},
		"too many selectors": {
			`filter: {selectors: [` + strings.Repeat(`{cel: {expression: "true"}},`, 33) + `]}`,
			[]string{`spec.devices.filter.selectors: Too many: 33: must have at most 32 items`},
		},
		"an attribute without a domain": {
			`attributes: {rack: {int: 1}}`,
			[]string{`spec.devices.attributes[rack]: Invalid value: "rack": must have a domain, as in driver.example.com/rack`},
		},
		"an attribute with an empty domain": {`attributes: {/rack: {int: 1}}`, []string{`spec.devices.attributes[/rack]: Invalid value: "/rack": the domain:`}},
		"an attribute with a domain that cannot be": {
			`attributes: {a_b/rack: {int: 1}}`, []string{`spec.devices.attributes[a_b/rack]: Invalid value: "a_b/rack": the domain:`},
		},
		"an attribute with a domain that is too long": {
			`attributes: {` + long + long + `/rack: {int: 1}}`, []string{`the domain is 66 bytes long, of which 63 are allowed`},
		},
		"an attribute with an empty identifier": {`attributes: {a.b/: {int: 1}}`, []string{`spec.devices.attributes[a.b/]: Invalid value: "a.b/": what follows the domain:`}},
		"an attribute with two slashes":         {`attributes: {a.b/c/d: {int: 1}}`, []string{`spec.devices.attributes[a.b/c/d]: Invalid value: "a.b/c/d": what follows the domain:`}},
		"an attribute that is no C identifier":  {`attributes: {a.b/c-d: {int: 1}}`, []string{`what follows the domain: a valid C identifier`}},
		"an attribute with an identifier that is too long": {
			`attributes: {a.b/` + long + `: {int: 1}}`, []string{`what follows the domain is 33 bytes long, of which 32 are allowed`},
		},
		"an attribute without a value": {
			`attributes: {a.b/c: {}}`, []string{`spec.devices.attributes[a.b/c]: Required value: give exactly one of int, bool, string`},
		},
		"an attribute that is null itself": {
			`attributes: {a.b/c: null}`, []string{`spec.devices.attributes[a.b/c]: Required value: give exactly one of`, `"null": {}, with the quotes, removes the attribute`},
		},
		"an attribute with two values": {
			`attributes: {a.b/c: {int: 1, "null": {}}}`, []string{`spec.devices.attributes[a.b/c]: Invalid value: "int, null": give exactly one of`},
		},
		"a string that is too long": {
			`attributes: {a.b/c: {string: ` + long + long + `}}`, []string{`spec.devices.attributes[a.b/c].string: Too long: may not be more than 64 bytes`},
		},
		"a version that is none": {
			`attributes: {a.b/c: {version: "1.2"}}`, []string{`spec.devices.attributes[a.b/c].version: Invalid value: "1.2": must be a semantic version such as 1.2.3`},
		},
		"a version that is too long": {
			`attributes: {a.b/c: {version: 1.2.3-` + long + long + `}}`, []string{`spec.devices.attributes[a.b/c].version: Too long`},
		},
		"empty ints":     {`attributes: {a.b/c: {ints: []}}`, []string{`spec.devices.attributes[a.b/c].ints: Required value: an empty list is no value`}},
		"empty bools":    {`attributes: {a.b/c: {bools: []}}`, []string{`spec.devices.attributes[a.b/c].bools: Required value`}},
		"empty strings":  {`attributes: {a.b/c: {strings: []}}`, []string{`spec.devices.attributes[a.b/c].strings: Required value`}},
		"empty versions": {`attributes: {a.b/c: {versions: []}}`, []string{`spec.devices.attributes[a.b/c].versions: Required value`}},
		"too many values in a list": {
			`attributes: {a.b/c: {ints: [` + strings.Repeat("1,", 49) + `]}}`, []string{`spec.devices.attributes[a.b/c].ints: Invalid value: 49: too many values: a device has at most 48`},
		},
		"a string in a list that is too long": {
			`attributes: {a.b/c: {strings: [a, ` + long + long + `]}}`, []string{`spec.devices.attributes[a.b/c].strings[1]: Too long`},
		},
		"a version in a list that is none": {`attributes: {a.b/c: {versions: [1.2.3, x]}}`, []string{`spec.devices.attributes[a.b/c].versions[1]: Invalid value: "x"`}},
		"too many attributes and capacities": {
			"attributes: {" + many(17) + "}\ncapacity: {" + strings.ReplaceAll(many(16), "int", "value") + "}",
			[]string{`spec.devices: Invalid value: 33: too many attributes and capacities: at most 32 together`},
		},
		"a capacity without a domain": {`capacity: {memory: {value: 1}}`, []string{`spec.devices.capacity[memory]: Invalid value: "memory": must have a domain`}},
		"a capacity that is null": {
			`capacity: {a.b/c: null}`, []string{`spec.devices.capacity[a.b/c].value: Required value: a capacity cannot be removed: give value 0 for none`},
		},
		"a capacity without a value": {`capacity: {a.b/c: {}}`, []string{`spec.devices.capacity[a.b/c].value: Required value`}},
		"a capacity below zero": {
			`capacity: {a.b/c: {value: -1Gi}}`, []string{`spec.devices.capacity[a.b/c].value: Invalid value: "-1Gi": must not be negative`},
		},
		"valid values and a valid range": {
			`capacity: {a.b/c: {value: 4, requestPolicy: {default: 1, validValues: [1], validRange: {min: 1}}}}`,
			[]string{`spec.devices.capacity[a.b/c].requestPolicy.validRange: Forbidden: give validValues or validRange, not both`},
		},
		"a policy without a default": {
			`capacity: {a.b/c: {value: 4, requestPolicy: {validValues: [1]}}}`, []string{`requestPolicy.default: Required value`},
		},
		"a default that is not valid": {
			`capacity: {a.b/c: {value: 4, requestPolicy: {default: 2, validValues: [1, 3]}}}`,
			[]string{`requestPolicy.default: Invalid value: "2": must be one of validValues`},
		},
		"valid values in disorder": {
			`capacity: {a.b/c: {value: 4, requestPolicy: {default: 1, validValues: [3, 1]}}}`,
			[]string{`requestPolicy.validValues[1]: Invalid value: "1": must be more than the one before it`},
		},
		"a valid value that there is not": {
			`capacity: {a.b/c: {value: 4, requestPolicy: {default: 1, validValues: [1, 5]}}}`,
			[]string{`requestPolicy.validValues[1]: Invalid value: "5": must not be more than the capacity, which is 4`},
		},
		"too many valid values": {
			`capacity: {a.b/c: {value: 40, requestPolicy: {default: 1, validValues: [1,2,3,4,5,6,7,8,9,10,11]}}}`,
			[]string{`requestPolicy.validValues: Too many: 11: must have at most 10 items`},
		},
		"a range without a beginning": {
			`capacity: {a.b/c: {value: 4, requestPolicy: {default: 1, validRange: {max: 2}}}}`, []string{`requestPolicy.validRange.min: Required value`},
		},
		"a range below zero": {
			`capacity: {a.b/c: {value: 4, requestPolicy: {default: 1, validRange: {min: -1}}}}`, []string{`requestPolicy.validRange.min: Invalid value: "-1": must not be negative`},
		},
		"a range beyond the capacity": {
			`capacity: {a.b/c: {value: 4, requestPolicy: {default: 1, validRange: {min: 0, max: 5}}}}`, []string{`requestPolicy.validRange.max: Invalid value: "5": must not be more than the capacity`},
		},
		"a range that is turned around": {
			`capacity: {a.b/c: {value: 4, requestPolicy: {default: 2, validRange: {min: 2, max: 1}}}}`, []string{`requestPolicy.validRange.min: Invalid value: "2": must not be more than max, which is 1`},
		},
		"a default outside of the range": {
			`capacity: {a.b/c: {value: 4, requestPolicy: {default: 3, validRange: {min: 0, max: 2}}}}`, []string{`requestPolicy.default: Invalid value: "3": must not be more than validRange.max`},
		},
		"a default below the range": {
			`capacity: {a.b/c: {value: 4, requestPolicy: {default: 1, validRange: {min: 2}}}}`, []string{`requestPolicy.validRange.min: Invalid value: "2": must not be more than default`},
		},
		"steps of nothing": {
			`capacity: {a.b/c: {value: 4, requestPolicy: {default: 1, validRange: {min: 1, step: 0}}}}`, []string{`requestPolicy.validRange.step: Invalid value: "0": must be more than 0`},
		},
		"a step beyond the capacity": {
			`capacity: {a.b/c: {value: 4, requestPolicy: {default: 1, validRange: {min: 1, step: 4}}}}`, []string{`requestPolicy.validRange.step: Invalid value: "5": must not be more than the capacity`},
		},
		"a default between steps": {
			`capacity: {a.b/c: {value: 4, requestPolicy: {default: 1500m, validRange: {min: 1, step: 1}}}}`, []string{`requestPolicy.default: Invalid value: "1500m": must be min and a whole number of steps`},
		},
		"an end between steps": {
			`capacity: {a.b/c: {value: 8, requestPolicy: {default: 1, validRange: {min: 1, max: 4, step: 2}}}}`, []string{`requestPolicy.validRange.max: Invalid value: "4": must be min and a whole number of steps`},
		},
		"a taint without a key":    {`taints: [{effect: NoSchedule}]`, []string{`spec.devices.taints[0].key: Required value`}},
		"a taint with a bad key":   {`taints: [{key: a b, effect: NoSchedule}]`, []string{`spec.devices.taints[0].key: Invalid value: "a b"`}},
		"a taint with a bad value": {`taints: [{key: a, value: "?", effect: NoSchedule}]`, []string{`spec.devices.taints[0].value: Invalid value: "?"`}},
		"a taint without effect":   {`taints: [{key: a}]`, []string{`spec.devices.taints[0].effect: Required value`}},
		"a taint of nodes":         {`taints: [{key: a, effect: PreferNoSchedule}]`, []string{`spec.devices.taints[0].effect: Unsupported value: "PreferNoSchedule"`}},
		"too many taints": {
			`taints: [` + strings.Repeat("{key: a, effect: None},", 17) + `]`, []string{`spec.devices.taints: Too many: 17: must have at most 16 items`},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := patch(t, "p", tt.devices)
			errs := ValidatePatch(p)
			require.NotEmpty(t, errs)
			for _, want := range tt.want {
				require.Contains(t, errs.ToAggregate().Error(), want)
			}
			applied, problems := Compile(p, nil)
			require.Nil(t, applied)
			require.Equal(t, errs, problems)
		})
	}
}

// explosion nests loops over ten numbers.
func explosion(depth int) string {
	if depth == 0 {
		return "x0 > 0"
	}
	return fmt.Sprintf("[1,2,3,4,5,6,7,8,9,10].all(x%d, %s)", depth-1, explosion(depth-1))
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "example.com/n%d: {int: 1}, ", i)
	}
	return b.String()
}

func TestAPatchThatIsValidIsNotRefused(t *testing.T) {
	t.Parallel()
	for name, devices := range map[string]string{
		"nothing":              `{}`,
		"an empty filter":      `filter: {}`,
		"all kinds of values":  `attributes: {a.b/a: {int: 0}, a.b/b: {bool: false}, a.b/c: {string: ""}, a.b/d: {version: 1.2.3-rc.1+x}, a.b/e: {ints: [1]}, a.b/f: {bools: [true]}, a.b/g: {strings: [a]}, a.b/h: {versions: [1.2.3]}, a.b/i: {"null": {}}}`,
		"a driver in capitals": `attributes: {GPU.example.com/a: {int: 0}}`,
		"as much as there may": "attributes: {" + many(32) + "}",
		"no capacity":          `capacity: {a.b/c: {value: 0}}`,
		"shares of a capacity": `capacity: {a.b/c: {value: 80Gi, requestPolicy: {default: 10Gi, validRange: {min: 5Gi, max: 80Gi, step: 5Gi}}}}`,
		"shares in parts":      `capacity: {a.b/c: {value: 4, requestPolicy: {default: 500m, validRange: {min: 100m, step: 100m}}}}`,
		"some shares":          `capacity: {a.b/c: {value: 4, requestPolicy: {default: 1, validValues: [1, 2, 4]}}}`,
		"twice the same taint": `taints: [{key: a, effect: None}, {key: a, effect: None}]`,
		"all that a filter has": `
filter:
  deviceClassName: gpu.example.com
  driver: gpu.example.com
  pool: rack/node-7
  device: gpu-0
  selectors: [{cel: {expression: "device.attributes['gpu.example.com'].model == 'A100'"}}]
priority: -2147483648`,
		"an unknown type": `filter: {selectors: [{cel: {expression: "device.attributes['gpu.example.com'].healthy"}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, ValidatePatch(patch(t, "p", devices)))
		})
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	for devices, want := range map[string][]string{
		`{filter: {driver: a}, taints: [{key: a, effect: None}]}`: nil,
		`{filter: {}, taints: [{key: a, effect: None}]}`:          {"for every device of every driver"},
		`{taints: [{key: a, effect: None}]}`:                      {"for every device of every driver"},
		`{filter: {selectors: [{cel: {expression: "true"}}]}}`:    {"changes nothing"},
		`{}`: {"for every device of every driver", "changes nothing"},
	} {
		warnings := Warnings(patch(t, "p", devices))
		require.Len(t, warnings, len(want), devices)
		for i := range want {
			require.Contains(t, warnings[i], want[i])
		}
	}
	published := patch(t, "p", `{filter: {driver: a}, taints: [{key: a, effect: None}]}`)
	published.Spec.Publish = true
	require.Equal(t, []string{"spec.publish does nothing: nothing is written into ResourceSlices, because drivers take what is for their own"}, Warnings(published))
}

func TestNoPatchIsWorseThanRefused(t *testing.T) {
	t.Parallel()
	require.NotPanics(t, func() { ValidatePatch(&v1alpha1.ResourceSlicePatch{}) })
}

func TestPublishIsRefusedUnlessItIsStored(t *testing.T) {
	t.Parallel()
	plain, published := &v1alpha1.ResourceSlicePatch{}, &v1alpha1.ResourceSlicePatch{}
	published.Spec.Publish = true
	require.Empty(t, ValidateFields(plain, nil))
	require.Empty(t, ValidateFields(published, published), "another field is changed")
	require.Empty(t, ValidateFields(plain, published))
	for _, was := range []*v1alpha1.ResourceSlicePatch{nil, plain} {
		errs := ValidateFields(published, was)
		require.Len(t, errs, 1)
		require.ErrorContains(t, errs[0], "spec.publish: Invalid value: true: nothing is written into ResourceSlices")
	}
}
