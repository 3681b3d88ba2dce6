package validation_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

// rule returns the spec of a rule with a taint and a selector "driver,pool,device", in
// which "*" stands for any; no selector for "-".
func rule(selector string, t resourcev1.DeviceTaint) *resourcev1.DeviceTaintRuleSpec {
	spec := &resourcev1.DeviceTaintRuleSpec{Taint: t}
	if selector == "-" {
		return spec
	}
	spec.DeviceSelector = &resourcev1.DeviceTaintSelector{}
	parts := strings.Split(selector, ",")
	for i, to := range []**string{&spec.DeviceSelector.Driver, &spec.DeviceSelector.Pool, &spec.DeviceSelector.Device} {
		if parts[i] != "*" {
			*to = &parts[i]
		}
	}
	return spec
}

func TestVS03UnsupportedSelector(t *testing.T) {
	t.Parallel()
	require.Empty(t, validation.UnsupportedSelector(nil))
	errs := validation.UnsupportedSelector([]string{"deviceClassName", "selectors"})
	require.Equal(t, []string{"Forbidden spec.deviceSelector.deviceClassName", "Forbidden spec.deviceSelector.selectors"}, deviceKinds(errs))
	require.Contains(t, errs[0].Error(), "not supported by this version of Tollgate, for which the rule selects nothing; select by driver, pool or device")
}

func TestValidateRule(t *testing.T) {
	t.Parallel()
	fine := deviceTaint("example.com/k=v:NoExecute")
	long := strings.Repeat("a", 63)

	for name, tc := range map[string]struct {
		old, new *resourcev1.DeviceTaintRuleSpec
		want     []string
	}{
		"AV-14 no selector":                               {new: rule("-", fine)},
		"AV-14 an empty selector":                         {new: rule("*,*,*", fine)},
		"AV-14 all three names":                           {new: rule("gpu.example.com,node-1/rack.a,gpu-0", fine)},
		"AV-14 a driver in capitals":                      {new: rule("GPU.Example.COM,*,*", fine)},
		"AV-14 a driver of 63 characters":                 {new: rule(long+",*,*", fine)},
		"AV-14 a driver of 64 characters":                 {new: rule("a."+long[:62]+",*,*", fine), want: []string{"Too long spec.deviceSelector.driver"}},
		"AV-14 K10 an empty driver":                       {new: rule(",*,*", fine), want: []string{"Required value spec.deviceSelector.driver"}},
		"AV-14 a driver that is none":                     {new: rule("gpu/example,*,*", fine), want: []string{"Invalid value spec.deviceSelector.driver"}},
		"AV-14 a pool of 253 characters":                  {new: rule("*,"+strings.Repeat("a/", 126)+"a,*", fine)},
		"AV-14 a pool of 254 characters":                  {new: rule("*,"+strings.Repeat("a/", 126)+"aa,*", fine), want: []string{"Too long spec.deviceSelector.pool"}},
		"AV-14 K10 an empty pool":                         {new: rule("*,,*", fine), want: []string{"Required value spec.deviceSelector.pool"}},
		"AV-14 a pool that ends in a slash":               {new: rule("*,a/,*", fine), want: []string{"Invalid value spec.deviceSelector.pool"}},
		"AV-14 a pool in capitals":                        {new: rule("*,Node,*", fine), want: []string{"Invalid value spec.deviceSelector.pool"}},
		"AV-14 K10 an empty device":                       {new: rule("*,*,", fine), want: []string{"Required value spec.deviceSelector.device"}},
		"AV-14 a device that is no label":                 {new: rule("*,*,gpu.0", fine), want: []string{"Invalid value spec.deviceSelector.device"}},
		"AV-14 a device of 64 characters":                 {new: rule("*,*,"+long+"a", fine), want: []string{"Invalid value spec.deviceSelector.device"}},
		"AV-15 every effect":                              {new: rule("*,*,*", deviceTaint("k:None"))},
		"AV-15 no taint at all":                           {new: &resourcev1.DeviceTaintRuleSpec{}, want: []string{"Required value spec.taint.key", "Required value spec.taint.effect"}},
		"AV-15 a key that is none":                        {new: rule("*,*,*", deviceTaint("no key:None")), want: []string{"Invalid value spec.taint.key"}},
		"AV-15 a value that is none":                      {new: rule("*,*,*", deviceTaint("k=-:None")), want: []string{"Invalid value spec.taint.value"}},
		"AV-15 a new effect that is not known":            {new: rule("*,*,*", deviceTaint("k:x"))},
		"AV-15 an effect that becomes unknown":            {old: rule("*,*,*", fine), new: rule("*,*,*", deviceTaint("k:x"))},
		"AV-15 an unknown effect becomes another unknown": {old: rule("*,*,*", deviceTaint("k:x")), new: rule("*,*,*", deviceTaint("k:y"))},
		"AV-15 an unknown effect stays, the key changes":  {old: rule("*,*,*", deviceTaint("k:x")), new: rule("*,*,*", deviceTaint("l:x"))},
		"AV-15 the effect is taken away":                  {old: rule("*,*,*", fine), new: rule("*,*,*", deviceTaint("example.com/k=v")), want: []string{"Required value spec.taint.effect"}},
		"AV-16 all of it changes":                         {old: rule("a,b,c", fine), new: rule("d,e,f", deviceTaint("l:None"))},
		"what stood there is not judged again":            {old: rule(",,", deviceTaint("no key=-:x")), new: rule(",,", deviceTaint("no key=-:x"))},
		"nor is it without a selector":                    {old: rule("-", deviceTaint("no key=-:x")), new: rule("-", deviceTaint("no key=-:x"))},
		"with another selector it is":                     {old: rule("-", deviceTaint("no key:x")), new: rule("*,*,*", deviceTaint("no key:x")), want: []string{"Invalid value spec.taint.key"}},
		"with the selector taken away it is":              {old: rule("*,*,*", deviceTaint("no key:x")), new: rule("-", deviceTaint("no key:x")), want: []string{"Invalid value spec.taint.key"}},
		"with a driver added it is":                       {old: rule("*,a,*", deviceTaint("no key:x")), new: rule("d,a,*", deviceTaint("no key:x")), want: []string{"Invalid value spec.taint.key"}},
		"with another pool it is":                         {old: rule("*,a,*", deviceTaint("no key:x")), new: rule("*,b,*", deviceTaint("no key:x")), want: []string{"Invalid value spec.taint.key"}},
		"with another device it is":                       {old: rule("*,*,a", deviceTaint("no key:x")), new: rule("*,*,b", deviceTaint("no key:x")), want: []string{"Invalid value spec.taint.key"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, deviceKinds(validation.ValidateRule(tc.new, tc.old)))
		})
	}
}
