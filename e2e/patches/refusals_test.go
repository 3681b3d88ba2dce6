package patches

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// warnings are what the API server warned of.
type warnings []string

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// submit asks the API server to judge a patch of that spec and not to store it.
func submit(t *testing.T, spec string) (warnings, error) {
	t.Helper()
	var heard warnings
	config := shared.RESTConfig()
	config.WarningHandler = &heard
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	patch := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte("metadata: {name: refused}\nspec:\n  "+strings.ReplaceAll(spec, "\n", "\n  ")), &patch.Object))
	patch.SetAPIVersion(v1alpha1.GroupVersion.String())
	patch.SetKind("ResourceSlicePatch")
	_, err = client.Resource(v1alpha1.GroupVersion.WithResource("resourceslicepatches")).
		Create(t.Context(), patch, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	return heard, err
}

// numbered are n attributes, or what else has such a value.
func numbered(n int, value string) string {
	var list strings.Builder
	for i := range n {
		fmt.Fprintf(&list, "example.com/n%d: %s, ", i, value)
	}
	return "{" + list.String() + "}"
}

func TestTheAPIServerRefusesWhatIsNoPatchByFieldAndReason(t *testing.T) {
	t.Parallel()
	const bytes65 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for name, tt := range map[string]struct{ devices, want string }{
		"no devices":                   {``, `spec.devices: Required value`},
		"an unknown field":             {`{filer: {driver: a}}`, `unknown field "spec.devices.filer"`},
		"a filter that is text":        {`{filter: a}`, `spec.devices.filter: Invalid value: "string"`},
		"an empty class":               {`{filter: {deviceClassName: ""}}`, `spec.devices.filter.deviceClassName: Invalid value: "": spec.devices.filter.deviceClassName in body should be at least 1 chars long`},
		"a class that is long":         {`{filter: {deviceClassName: ` + strings.Repeat("a", 254) + `}}`, `spec.devices.filter.deviceClassName: Too long: may not be more than 253 bytes`},
		"an empty driver":              {`{filter: {driver: ""}}`, `spec.devices.filter.driver: Invalid value: ""`},
		"a driver that is long":        {`{filter: {driver: ` + bytes65 + `}}`, `spec.devices.filter.driver: Too long: may not be more than 63 bytes`},
		"an empty pool":                {`{filter: {pool: ""}}`, `spec.devices.filter.pool: Invalid value: ""`},
		"a pool that is long":          {`{filter: {pool: ` + strings.Repeat("a", 254) + `}}`, `spec.devices.filter.pool: Too long: may not be more than 253 bytes`},
		"an empty device":              {`{filter: {device: ""}}`, `spec.devices.filter.device: Invalid value: ""`},
		"a device that is long":        {`{filter: {device: ` + bytes65 + `}}`, `spec.devices.filter.device: Too long: may not be more than 63 bytes`},
		"a selector by nothing":        {`{filter: {selectors: [{}]}}`, `spec.devices.filter.selectors[0]: Invalid value`},
		"no expression":                {`{filter: {selectors: [{cel: {}}]}}`, `spec.devices.filter.selectors[0].cel.expression: Required value`},
		"an empty expression":          {`{filter: {selectors: [{cel: {expression: ""}}]}}`, `spec.devices.filter.selectors[0].cel.expression: Invalid value: ""`},
		"a long expression":            {`{filter: {selectors: [{cel: {expression: "` + strings.Repeat("x", 10241) + `"}}]}}`, `spec.devices.filter.selectors[0].cel.expression: Too long: may not be more than 10240 bytes`},
		"too many selectors":           {`{filter: {selectors: [` + strings.Repeat(`{cel: {expression: "true"}}, `, 33) + `]}}`, `spec.devices.filter.selectors: Too many: 33: must have at most 32 items`},
		"a priority that is text":      {`{priority: high}`, `spec.devices.priority: Invalid value: "string"`},
		"a priority beyond all":        {`{priority: 2147483648}`, `must be of type integer with format int32 in spec.devices.priority`},
		"an attribute without value":   {`{attributes: {a.b/c: {}}}`, `spec.devices.attributes.a.b/c: Invalid value`},
		"an attribute with two values": {`{attributes: {a.b/c: {int: 1, bool: true}}}`, `spec.devices.attributes.a.b/c: Too many`},
		"a value that is removed":      {`{attributes: {a.b/c: {int: 1, "null": {}}}}`, `spec.devices.attributes.a.b/c: Too many`},
		"a number that is text":        {`{attributes: {a.b/c: {int: "1"}}}`, `spec.devices.attributes.a.b/c.int: Invalid value: "string"`},
		"a long string":                {`{attributes: {a.b/c: {string: ` + bytes65 + `}}}`, `spec.devices.attributes.a.b/c.string: Too long: may not be more than 64 bytes`},
		"a long version":               {`{attributes: {a.b/c: {version: ` + bytes65 + `}}}`, `spec.devices.attributes.a.b/c.version: Too long: may not be more than 64 bytes`},
		"an empty list":                {`{attributes: {a.b/c: {ints: []}}}`, `spec.devices.attributes.a.b/c.ints: Invalid value`},
		"a list of too many":           {`{attributes: {a.b/c: {ints: [` + strings.Repeat("1, ", 49) + `]}}}`, `spec.devices.attributes.a.b/c.ints: Too many: 49: must have at most 48 items`},
		"a long string in a list":      {`{attributes: {a.b/c: {strings: [a, ` + bytes65 + `]}}}`, `spec.devices.attributes.a.b/c.strings[1]: Too long: may not be more than 64 bytes`},
		"too many attributes":          {`{attributes: ` + numbered(33, "{int: 1}") + `}`, `spec.devices.attributes: Too many: 33: must have at most 32 items`},
		"too many capacities":          {`{capacity: ` + numbered(33, "{value: 1}") + `}`, `spec.devices.capacity: Too many: 33: must have at most 32 items`},
		"too many of both":             {`{attributes: ` + numbered(17, "{int: 1}") + `, capacity: ` + numbered(16, "{value: 1}") + `}`, `at most 32 attributes and capacities together`},
		"a capacity without value":     {`{capacity: {a.b/c: {}}}`, `spec.devices.capacity.a.b/c.value: Required value`},
		"a capacity of null":           {`{capacity: {a.b/c: {value: null}}}`, `spec.devices.capacity.a.b/c.value`},
		"a capacity that is none":      {`{capacity: {a.b/c: {value: much}}}`, `spec.devices.capacity.a.b/c.value: Invalid value: "much"`},
		"values and a range":           {`{capacity: {a.b/c: {value: 4, requestPolicy: {default: 1, validValues: [1], validRange: {min: 1}}}}}`, `give validValues or validRange, not both`},
		"too many valid values":        {`{capacity: {a.b/c: {value: 40, requestPolicy: {default: 1, validValues: [1,2,3,4,5,6,7,8,9,10,11]}}}}`, `spec.devices.capacity.a.b/c.requestPolicy.validValues: Too many: 11: must have at most 10 items`},
		"a range without min":          {`{capacity: {a.b/c: {value: 4, requestPolicy: {default: 1, validRange: {max: 2}}}}}`, `spec.devices.capacity.a.b/c.requestPolicy.validRange.min: Required value`},
		"a taint without key":          {`{taints: [{effect: NoSchedule}]}`, `spec.devices.taints[0].key: Required value`},
		"a taint with no key":          {`{taints: [{key: "", effect: NoSchedule}]}`, `spec.devices.taints[0].key: Invalid value: ""`},
		"a taint without effect":       {`{taints: [{key: a}]}`, `spec.devices.taints[0].effect: Required value`},
		"an effect of nodes":           {`{taints: [{key: a, effect: PreferNoSchedule}]}`, `spec.devices.taints[0].effect: Unsupported value: "PreferNoSchedule": supported values: "None", "NoSchedule", "NoExecute"`},
		"a long value of a taint":      {`{taints: [{key: a, value: ` + bytes65 + `, effect: None}]}`, `spec.devices.taints[0].value: Too long: may not be more than 63 bytes`},
		"a time that is none":          {`{taints: [{key: a, effect: None, timeAdded: yesterday}]}`, `spec.devices.taints[0].timeAdded: Invalid value: "yesterday"`},
		"too many taints":              {`{taints: [` + strings.Repeat("{key: a, effect: None}, ", 17) + `]}`, `spec.devices.taints: Too many: 17: must have at most 16 items`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := "devices: " + tt.devices
			if tt.devices == "" {
				spec = "publish: false"
			}
			_, err := submit(t, spec)
			require.ErrorContains(t, err, tt.want)
			require.Less(t, len(err.Error()), 1000, "who reads it must find the reason")
			require.True(t, apierrors.IsInvalid(err) || apierrors.IsBadRequest(err), "%v", err)
		})
	}
}

func TestTollgateRefusesWhatTheSchemaCannotByFieldAndReason(t *testing.T) {
	t.Parallel()
	policy := func(policy string) string { return `{capacity: {a.b/c: {value: 4, requestPolicy: {` + policy + `}}}}` }
	for name, tt := range map[string]struct{ devices, want string }{
		"a class that cannot be":  {`{filter: {deviceClassName: A b}}`, `spec.devices.filter.deviceClassName: Invalid value: "A b"`},
		"a driver that cannot be": {`{filter: {driver: a_b}}`, `spec.devices.filter.driver: Invalid value: "a_b"`},
		"a pool that cannot be":   {`{filter: {pool: a//b}}`, `spec.devices.filter.pool: Invalid value: "a//b"`},
		"a device that cannot be": {`{filter: {device: gpu.0}}`, `spec.devices.filter.device: Invalid value: "gpu.0"`},
		"a blank expression":      {`{filter: {selectors: [{cel: {expression: " "}}]}}`, `spec.devices.filter.selectors[0].cel.expression: Required value: give an expression about device`},
		"an expression that does not compile": {
			`{filter: {selectors: [{cel: {expression: "true"}}, {cel: {expression: "device.nope"}}]}}`,
			`spec.devices.filter.selectors[1].cel.expression: Invalid value: "device.nope": line 1, column 7: undefined field 'nope'`,
		},
		"an expression that is no truth value": {
			`{filter: {selectors: [{cel: {expression: "1"}}]}}`, `spec.devices.filter.selectors[0].cel.expression: Invalid value: "1": must evaluate to bool or the unknown type, not int`,
		},
		"an expression that explodes": {
			`{filter: {selectors: [{cel: {expression: "[1,2,3,4,5,6,7,8,9,0].all(a, [1,2,3,4,5,6,7,8,9,0].all(b, [1,2,3,4,5,6,7,8,9,0].all(c, [1,2,3,4,5,6,7,8,9,0].all(d, a + b + c + d > 0))))"}}]}}`,
			`of which 10000 are allowed: every device there is will be asked`,
		},
		"an attribute without a domain": {`{attributes: {model: {int: 1}}}`, `spec.devices.attributes[model]: Invalid value: "model": must have a domain, as in driver.example.com/model`},
		"a domain that cannot be":       {`{attributes: {a_b/c: {int: 1}}}`, `spec.devices.attributes[a_b/c]: Invalid value: "a_b/c": the domain`},
		"a name that cannot be":         {`{attributes: {a.b/c-d: {int: 1}}}`, `spec.devices.attributes[a.b/c-d]: Invalid value: "a.b/c-d": what follows the domain`},
		"a version that is none":        {`{attributes: {a.b/c: {version: "1.2"}}}`, `spec.devices.attributes[a.b/c].version: Invalid value: "1.2": must be a semantic version such as 1.2.3`},
		"a version in a list":           {`{attributes: {a.b/c: {versions: [1.2.3, x]}}}`, `spec.devices.attributes[a.b/c].versions[1]: Invalid value: "x"`},
		"a capacity without a domain":   {`{capacity: {memory: {value: 1}}}`, `spec.devices.capacity[memory]: Invalid value: "memory": must have a domain`},
		"a capacity that is null":       {`{capacity: {a.b/c: null}}`, `spec.devices.capacity[a.b/c].value: Required value: a capacity cannot be removed: give value 0 for none`},
		"an attribute that is null":     {`{attributes: {a.b/c: null}}`, `spec.devices.attributes[a.b/c]: Required value: give exactly one of`},
		"null among what is right":      {`{attributes: {a.b/d: {int: 1}}, capacity: {a.b/c: null}}`, `spec.devices.capacity[a.b/c].value: Required value: a capacity cannot be removed`},
		"a capacity below zero":         {`{capacity: {a.b/c: {value: -1Gi}}}`, `spec.devices.capacity[a.b/c].value: Invalid value: "-1Gi": must not be negative`},
		"a policy without a default":    {policy(`validValues: [1]`), `requestPolicy.default: Required value: say what a request gets that does not say how much`},
		"a default that is no value":    {policy(`default: 2, validValues: [1, 3]`), `requestPolicy.default: Invalid value: "2": must be one of validValues`},
		"values in disorder":            {policy(`default: 1, validValues: [3, 1]`), `requestPolicy.validValues[1]: Invalid value: "1": must be more than the one before it`},
		"a value beyond the capacity":   {policy(`default: 1, validValues: [1, 5]`), `requestPolicy.validValues[1]: Invalid value: "5": must not be more than the capacity, which is 4`},
		"a range below zero":            {policy(`default: 1, validRange: {min: -1}`), `requestPolicy.validRange.min: Invalid value: "-1": must not be negative`},
		"a range beyond the capacity":   {policy(`default: 1, validRange: {min: 0, max: 5}`), `requestPolicy.validRange.max: Invalid value: "5": must not be more than the capacity`},
		"a range that is turned around": {policy(`default: 2, validRange: {min: 2, max: 1}`), `requestPolicy.validRange.min: Invalid value: "2": must not be more than max, which is 1`},
		"a default beyond the range":    {policy(`default: 3, validRange: {min: 0, max: 2}`), `requestPolicy.default: Invalid value: "3": must not be more than validRange.max`},
		"steps of nothing":              {policy(`default: 1, validRange: {min: 1, step: 0}`), `requestPolicy.validRange.step: Invalid value: "0": must be more than 0`},
		"a default between steps":       {policy(`default: 1500m, validRange: {min: 1, step: 1}`), `requestPolicy.default: Invalid value: "1500m": must be min and a whole number of steps`},
		"a taint's key":                 {`{taints: [{key: a b, effect: None}]}`, `spec.devices.taints[0].key: Invalid value: "a b"`},
		"a taint's value":               {`{taints: [{key: a, value: "?", effect: None}]}`, `spec.devices.taints[0].value: Invalid value: "?"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := submit(t, "devices: "+tt.devices)
			require.ErrorContains(t, err, tt.want)
			require.Less(t, len(err.Error()), 1000, "who reads it must find the reason")
		})
	}
}

func TestTollgateWarnsOfPatchesThatAreValidAndProbablyNotMeant(t *testing.T) {
	t.Parallel()
	for devices, want := range map[string]string{
		`{attributes: {a.b/c: {int: 1}}}`: "spec.devices.filter asks for nothing: the patch is for every device of every driver",
		`{filter: {driver: a}}`:           "spec.devices has neither attributes nor capacity nor taints: the patch changes nothing",
	} {
		heard, err := submit(t, "devices: "+devices)
		require.NoError(t, err)
		require.Equal(t, warnings{want}, heard)
	}
}

func TestAPatchThatBecomesInvalidIsRefusedAndStaysInForceAsItWas(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish(t, "pool", gpu("a", 0), gpu("b", 1))
	s.patch(t, "b", `{filter: {driver: DRIVER, device: b}, attributes: {DRIVER/model: {string: B}}}`)
	require.ErrorContains(t, s.edit(t.Context(), s.patchName("b"), func(patch *v1alpha1.ResourceSlicePatch) {
		patch.Spec.Devices.Filter.Selectors = []v1alpha1.PatchedDeviceSelector{{CEL: &v1alpha1.CELDeviceSelector{Expression: "device.nope"}}}
	}), "spec.devices.filter.selectors[0].cel.expression")
	s.settle(t)
	s.run(t, "pod", modelB)
	s.requireOn(t, "pod", "pool/b")
}
