package validation_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

func TestSliceWarnings(t *testing.T) {
	t.Parallel()
	one := func(spec string, offset ...float64) []validation.Device {
		return slice(device("a", deviceTaint(spec, offset...)))
	}
	const key, since = "spec.devices[0].taints[0].key: ", "spec.devices[0].taints[0].timeAdded: "
	const bare = `"k" has no domain: a key such as example.com/k cannot clash with those of others`

	for name, tc := range map[string]struct {
		old, new []validation.Device
		want     []string
	}{
		"a taint as it should be":                  {new: one("gpu.example.com/k:NoExecute", 60)},
		"DE-29 a time in an hour":                  {new: one("example.com/k:NoExecute", 3600), want: []string{since + "2026-11-20T13:00:00Z is 1h0m0s ahead: the scheduler obeys the taint at once, but no pod is evicted for it before then"}},
		"a time 61 s ahead":                        {new: one("example.com/k:NoExecute", 61), want: []string{since + "2026-11-20T12:01:01Z is 1m1s ahead: the scheduler obeys the taint at once, but no pod is evicted for it before then"}},
		"a time ahead that stood there":            {old: one("example.com/k:NoExecute", 3600), new: slice(device("a", deviceTaint("example.com/k:NoExecute", 3600), deviceTaint("example.com/l:None")))},
		"a key without a domain":                   {new: one("k:None"), want: []string{key + bare}},
		"a key of Kubernetes":                      {new: one("kubernetes.io/k:None"), want: []string{key + `"kubernetes.io/k" is in a domain that is reserved for Kubernetes`}},
		"a key below one of Kubernetes":            {new: one("resource.k8s.io/k:None"), want: []string{key + `"resource.k8s.io/k" is in a domain that is reserved for Kubernetes`}},
		"a domain that only ends alike":            {new: one("notk8s.io/k:None")},
		"one key on many devices is said once":     {new: slice(device("a", deviceTaint("k:None"), deviceTaint("k:NoExecute")), device("b", deviceTaint("k:None"))), want: []string{key + bare}},
		"what stood there":                         {old: one("k:None", 3600), new: one("k:None", 3600)},
		"a key that stood there gets another time": {old: one("k:None", -1), new: one("k:None", -2)},
		"the key of another device does not stand": {old: one("k:None", -1), new: slice(device("b", deviceTaint("k:None", -1))), want: []string{key + bare}},
		"no key at all is refused elsewhere":       {new: one(":None")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, validation.SliceWarnings(tc.new, tc.old, deviceNow))
		})
	}
}

func TestRuleWarnings(t *testing.T) {
	t.Parallel()
	const every = "spec.deviceSelector: is empty: EVERY device of every driver in the cluster is selected"
	const none = "spec.deviceSelector: is not set: no device is selected and the rule has no effect; the empty selector {} selects every device"
	const drivers = `spec.taint.key: "gpu.example.com/k" is in the domain of driver "gpu.example.com", which says what the key means: use a domain of your own`
	const unknown = `spec.taint.effect: "x" is not known here and does what None does: nothing`
	fine := deviceTaint("admin.example.org/k:NoExecute")

	for name, tc := range map[string]struct {
		old, new *resourcev1.DeviceTaintRuleSpec
		want     []string
	}{
		"a rule as it should be":                         {new: rule("gpu.example.com,*,*", fine)},
		"a pool is a selection":                          {new: rule("*,a,*", fine)},
		"a device is a selection":                        {new: rule("*,*,a", fine)},
		"DE-20 the empty selector":                       {new: rule("*,*,*", fine), want: []string{every}},
		"DE-20 no selector":                              {new: rule("-", fine), want: []string{none}},
		"DE-20 a selector becomes empty":                 {old: rule("a,*,*", fine), new: rule("*,*,*", fine), want: []string{every}},
		"DE-20 the effect of an empty selector changes":  {old: rule("*,*,*", deviceTaint("admin.example.org/k:None")), new: rule("*,*,*", fine), want: []string{every}},
		"a key of the driver":                            {new: rule("gpu.example.com,*,*", deviceTaint("gpu.example.com/k:None")), want: []string{drivers}},
		"a key of the driver's owner":                    {new: rule("gpu.example.com,*,*", deviceTaint("example.com/k:None")), want: []string{`spec.taint.key: "example.com/k" is in the domain of driver "gpu.example.com", which says what the key means: use a domain of your own`}},
		"a key below the driver":                         {new: rule("gpu.example.com,*,*", deviceTaint("health.gpu.example.com/k:None")), want: []string{`spec.taint.key: "health.gpu.example.com/k" is in the domain of driver "gpu.example.com", which says what the key means: use a domain of your own`}},
		"a key beside the driver":                        {new: rule("gpu.example.com,*,*", deviceTaint("admin.example.com/k:None"))},
		"a key that only ends like the driver":           {new: rule("gpu.example.com,*,*", deviceTaint("my-gpu.example.com/k:None"))},
		"a key in a domain of one label":                 {new: rule("gpu.example.com,*,*", deviceTaint("com/k:None"))},
		"a key that is called like a driver of one":      {new: rule("gpu,*,*", deviceTaint("gpu/k:None")), want: []string{`spec.taint.key: "gpu/k" is in the domain of driver "gpu", which says what the key means: use a domain of your own`}},
		"a key below a driver of one label":              {new: rule("gpu,*,*", deviceTaint("example.gpu/k:None"))},
		"a key of a driver that is not selected":         {new: rule("*,a,*", deviceTaint("gpu.example.com/k:None"))},
		"a driver in capitals":                           {new: rule("GPU.example.com,*,*", deviceTaint("gpu.example.com/k:None")), want: []string{`spec.taint.key: "gpu.example.com/k" is in the domain of driver "GPU.example.com", which says what the key means: use a domain of your own`}},
		"a selector comes to a key of the driver":        {old: rule("*,a,*", deviceTaint("gpu.example.com/k:None")), new: rule("gpu.example.com,*,*", deviceTaint("gpu.example.com/k:None")), want: []string{drivers}},
		"a key without a domain":                         {new: rule("a,*,*", deviceTaint("k:None")), want: []string{`spec.taint.key: "k" has no domain: a key such as example.com/k cannot clash with those of others`}},
		"a key without a domain that stood there":        {old: rule("a,*,*", deviceTaint("k:None")), new: rule("a,*,*", deviceTaint("k:NoExecute"))},
		"a time ahead":                                   {new: rule("a,*,*", deviceTaint("admin.example.org/k:None", 90)), want: []string{"spec.taint.timeAdded: 2026-11-20T12:01:30Z is 1m30s ahead: the scheduler obeys the taint at once, but no pod is evicted for it before then"}},
		"a time ahead that stood there":                  {old: rule("a,*,*", deviceTaint("admin.example.org/k:None", 90)), new: rule("b,*,*", deviceTaint("admin.example.org/k:None", 90))},
		"AV-15 an unknown effect that stays":             {old: rule("a,*,*", deviceTaint("admin.example.org/k:x")), new: rule("b,*,*", deviceTaint("admin.example.org/k:x")), want: []string{unknown}},
		"nothing of a spec that did not change":          {old: rule("*,*,*", deviceTaint("k:x", 90)), new: rule("*,*,*", deviceTaint("k:x", 90))},
		"nothing of one without a selector that did not": {old: rule("-", fine), new: rule("-", fine)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, validation.RuleWarnings(tc.new, tc.old, deviceNow))
		})
	}
}
