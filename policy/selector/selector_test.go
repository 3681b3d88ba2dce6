package selector

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestSelects(t *testing.T) {
	const (
		node   = v1alpha1.TaintTargetNode
		device = v1alpha1.TaintTargetDevice
		gpus   = `{target: Device, key: "*", drivers: [gpu.example.com]}`
	)
	tests := map[string]struct {
		selector string
		target   v1alpha1.TaintTarget
		driver   string
		taint    string // key=value:effect
		want     bool
	}{
		"key, value and effect":                          {`{key: dedicated, values: [banana], effects: [NoSchedule]}`, node, "", "dedicated=banana:NoSchedule", true},
		"another value":                                  {`{key: dedicated, values: [banana]}`, node, "", "dedicated=apple:NoSchedule", false},
		"no value is a value":                            {`{key: dedicated, values: [banana]}`, node, "", "dedicated=:NoSchedule", false},
		"another effect":                                 {`{key: dedicated, effects: [NoSchedule]}`, node, "", "dedicated=banana:NoExecute", false},
		"a target that is not named is a node":           {`{key: dedicated}`, "", "", "dedicated=:NoSchedule", true},
		"a target that is not known is a node":           {`{target: Rack, key: dedicated}`, node, "", "dedicated=:NoSchedule", true},
		"a taint of a device is none of a node":          {`{key: dedicated}`, device, "gpu.example.com", "dedicated=:NoSchedule", false},
		"the star leaves out the system's keys of nodes": {`{key: "*"}`, node, "", "node.kubernetes.io/not-ready=:NoExecute", false},
		"the star selects every key of devices":          {`{target: Device, key: "*"}`, device, "gpu.example.com", "node.kubernetes.io/not-ready=:NoExecute", true},
		"the driver":                                     {gpus, device, "gpu.example.com", "broken=:NoExecute", true},
		"another driver":                                 {gpus, device, "nic.example.com", "broken=:NoExecute", false},
		"C25 a rule over every driver is over this one":  {gpus, device, "", "broken=:NoExecute", true},
		"device classes do not matter to a taint":        {`{target: Device, key: a, deviceClasses: [gpu]}`, device, "gpu.example.com", "a=:None", true},
		"drivers do not matter to a node":                {`{key: a, drivers: [gpu]}`, node, "", "a=:NoSchedule", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			sel := selectorOf(t, tt.selector)
			key, rest, _ := strings.Cut(tt.taint, "=")
			value, effect, _ := strings.Cut(rest, ":")
			require.Equal(t, tt.want, sel.Selects(tt.target, tt.driver, key, value, corev1.TaintEffect(effect)))
		})
	}
}

func TestASelectorInWords(t *testing.T) {
	for selector, want := range map[string]string{
		`{key: dedicated}`: "dedicated",
		`{key: dedicated, values: ["", banana], effects: [NoSchedule, NoExecute]}`: `dedicated=""|banana:NoSchedule|NoExecute`,
		`{key: example.com/*}`:       "example.com/*",
		`{key: "*"}`:                 "* (every key but the system's)",
		`{target: Device, key: "*"}`: "* (every key) of devices",
		`{target: Device, key: a, drivers: [gpu.example.com, nic]}`:       "a of devices of driver gpu.example.com, nic",
		`{target: Device, key: a, effects: [None], deviceClasses: [gpu]}`: "a:None of devices of class gpu",
		`{key: "a\nb"}`: "a b",
	} {
		sel := selectorOf(t, selector)
		require.Equal(t, want, sel.String(), selector)
	}
}

func TestTheKeyIsTheOneThatWasWritten(t *testing.T) {
	for _, key := range []string{"dedicated", "example.com/a", "example.com/*", "*"} {
		sel := Compile(&v1alpha1.TaintSelector{Key: key})
		require.Equal(t, key, sel.Key())
	}
}

func TestCompileKeepsNothingOfItsInput(t *testing.T) {
	in := v1alpha1.TaintSelector{
		Target: v1alpha1.TaintTargetDevice, Key: "a", Values: []string{"b"}, Effects: []corev1.TaintEffect{noSchedule},
		DeviceClasses: []string{"c"}, Drivers: []string{"d"},
	}
	sel := Compile(&in)
	in.Values[0], in.Effects[0], in.DeviceClasses[0], in.Drivers[0] = "x", "x", "x", "x"
	require.True(t, sel.Selects(v1alpha1.TaintTargetDevice, "d", "a", "b", noSchedule))
	require.False(t, sel.Selects(v1alpha1.TaintTargetDevice, "x", "a", "b", noSchedule))
	require.Equal(t, "a=b:NoSchedule of devices of driver d of class c", sel.String())
}

func TestValidate(t *testing.T) {
	const (
		forbidden    = string(field.ErrorTypeForbidden)
		invalid      = string(field.ErrorTypeInvalid)
		required     = string(field.ErrorTypeRequired)
		duplicate    = string(field.ErrorTypeDuplicate)
		notSupported = string(field.ErrorTypeNotSupported)
	)
	tests := map[string]struct {
		selector    string
		tolerations []string // what is wrong with it for tolerations
		taints      []string
	}{
		"every field of a node":              {`{target: Node, key: dedicated, values: [banana, ""], effects: [NoSchedule, PreferNoSchedule, NoExecute]}`, nil, nil},
		"every effect of a device":           {`{target: Device, key: "*", values: [a], effects: [None, NoSchedule, NoExecute]}`, nil, nil},
		"device classes":                     {`{target: Device, key: a, deviceClasses: [gpu.example.com]}`, nil, []string{forbidden + " deviceClasses"}},
		"drivers":                            {`{target: Device, key: a, drivers: [gpu.example.com]}`, []string{forbidden + " drivers"}, nil},
		"device classes of a node":           {`{key: a, deviceClasses: [gpu]}`, []string{forbidden + " deviceClasses"}, []string{forbidden + " deviceClasses"}},
		"drivers of a node":                  {`{key: a, drivers: [gpu]}`, []string{forbidden + " drivers"}, []string{forbidden + " drivers"}},
		"an unknown target":                  {`{target: Rack, key: a}`, []string{notSupported + " target"}, []string{notSupported + " target"}},
		"no key":                             {`{key: ""}`, []string{required + " key"}, []string{required + " key"}},
		"an effect of devices":               {`{key: a, effects: [None]}`, []string{notSupported + " effects[0]"}, []string{notSupported + " effects[0]"}},
		"an effect that devices do not have": {`{target: Device, key: a, effects: [PreferNoSchedule]}`, []string{notSupported + " effects[0]"}, []string{notSupported + " effects[0]"}},
		"a class twice":                      {`{target: Device, key: a, deviceClasses: [gpu, gpu]}`, []string{duplicate + " deviceClasses[1]"}, []string{duplicate + " deviceClasses[1]", forbidden + " deviceClasses"}},
		"a class that is no name":            {`{target: Device, key: a, deviceClasses: ["G P U"]}`, []string{invalid + " deviceClasses[0]"}, []string{invalid + " deviceClasses[0]", forbidden + " deviceClasses"}},
		"a driver that is no name":           {`{target: Device, key: a, drivers: [""]}`, []string{invalid + " drivers[0]", forbidden + " drivers"}, []string{invalid + " drivers[0]"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var sel v1alpha1.TaintSelector
			require.NoError(t, yaml.UnmarshalStrict([]byte(tt.selector), &sel))
			require.Equal(t, tt.tolerations, wordsOf(validate(&sel, nil, Tolerations)))
			require.Equal(t, tt.taints, wordsOf(validate(&sel, nil, Taints)))
		})
	}
}

func wordsOf(errs field.ErrorList) []string {
	var words []string
	for _, err := range errs {
		words = append(words, string(err.Type)+" "+err.Field)
	}
	return words
}

func TestD06ListsAndNamesAreBounded(t *testing.T) {
	sel := v1alpha1.TaintSelector{Target: v1alpha1.TaintTargetDevice, Key: "a"}
	for i := range 65 {
		sel.Values = append(sel.Values, strings.Repeat("v", i))
		sel.DeviceClasses = append(sel.DeviceClasses, strings.Repeat("c", 1+i))
	}
	sel.DeviceClasses[0] = strings.Repeat("c", 254)
	path := field.NewPath("spec", "taints")
	require.Equal(t, []string{
		"FieldValueTooMany spec.taints[0].deviceClasses", "FieldValueTooLong spec.taints[0].deviceClasses[0]",
		"FieldValueTooMany spec.taints[0].values", "FieldValueInvalid spec.taints[0].values[64]",
	}, wordsOf(ValidateAll([]v1alpha1.TaintSelector{sel}, path, Tolerations)))

	many := make([]v1alpha1.TaintSelector, 65)
	for i := range many {
		many[i].Key = "a"
	}
	require.Equal(t, []string{"FieldValueTooMany spec.taints"}, wordsOf(ValidateAll(many, path, Taints)))
	require.Equal(t, []string{"FieldValueRequired spec.taints"}, wordsOf(ValidateAll(nil, path, Taints)))
}

func TestASelectorOfEveryTaintWithAKeyIsToldFromOneOfSome(t *testing.T) {
	tests := map[string]struct {
		selector v1alpha1.TaintSelector
		want     bool
	}{
		"of the key":         {v1alpha1.TaintSelector{Key: "a"}, true},
		"of every key":       {v1alpha1.TaintSelector{Key: "*"}, true},
		"of another key":     {v1alpha1.TaintSelector{Key: "b"}, false},
		"of devices":         {v1alpha1.TaintSelector{Target: v1alpha1.TaintTargetDevice, Key: "a"}, false},
		"of some values":     {v1alpha1.TaintSelector{Key: "a", Values: []string{""}}, false},
		"of some drivers":    {v1alpha1.TaintSelector{Key: "a", Drivers: []string{"d"}}, false},
		"of this effect too": {v1alpha1.TaintSelector{Key: "a", Effects: []corev1.TaintEffect{"NoSchedule", "NoExecute"}}, true},
		"of another effect":  {v1alpha1.TaintSelector{Key: "a", Effects: []corev1.TaintEffect{"NoSchedule"}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := Compile(&tt.selector)
			require.Equal(t, tt.want, s.SelectsEvery("", "a", corev1.TaintEffectNoExecute))
		})
	}
}
