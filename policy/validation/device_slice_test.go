package validation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

func TestValidateSlice(t *testing.T) {
	t.Parallel()
	bad := slice(device("a", deviceTaint("no key=no value:PreferNoSchedule")))

	for name, tc := range map[string]struct {
		old, new []validation.Device
		want     []string
	}{
		"no devices":                                          {},
		"AV-01 16 taints on a device":                         {new: slice(device("a", times(16)...))},
		"AV-01 17 taints on a device":                         {new: slice(device("a"), device("b", times(17)...)), want: []string{"Too many spec.devices[1].taints"}},
		"AV-01 16 on each of two devices":                     {new: slice(device("a", times(16)...), device("b", times(16)...))},
		"AV-01 a seventeenth is added":                        {old: slice(device("a", times(16)...)), new: slice(device("a", times(17)...)), want: []string{"Too many spec.devices[0].taints"}},
		"AV-01 what is wrong inside too many is not said":     {new: slice(device("a", append(times(17), deviceTaint("no key:x"))...)), want: []string{"Too many spec.devices[0].taints"}},
		"AV-02 64 devices, one with a taint":                  {new: many(63, device("a", deviceTaint("k:None")))},
		"AV-02 65 devices, one with a taint":                  {new: many(64, device("a", deviceTaint("k:None"))), want: []string{"Too many spec.devices"}},
		"AV-02 128 devices without taints":                    {new: many(128)},
		"AV-02 128 devices, of which one gets a taint":        {old: many(127, device("a")), new: many(127, device("a", deviceTaint("k:None"))), want: []string{"Too many spec.devices"}},
		"AV-02 a sixty-fifth device":                          {old: many(63, device("a", deviceTaint("k:None"))), new: many(64, device("a", deviceTaint("k:None"))), want: []string{"Too many spec.devices"}},
		"AV-02 what stood there":                              {old: many(64, device("a", deviceTaint("k:None"))), new: many(64, device("a", deviceTaint("k:None")))},
		"AV-03 all effects":                                   {new: slice(device("a", deviceTaint("k:None"), deviceTaint("k:NoSchedule"), deviceTaint("example.com/k=v:NoExecute")))},
		"AV-03 no key":                                        {new: slice(device("a", deviceTaint(":None"))), want: []string{"Required value spec.devices[0].taints[0].key"}},
		"AV-03 a key that is no label name":                   {new: slice(device("a", deviceTaint("k:None"), deviceTaint("a/b/c:None"))), want: []string{"Invalid value spec.devices[0].taints[1].key"}},
		"AV-03 a value that is no label value":                {new: slice(device("a", deviceTaint("k=-:None"))), want: []string{"Invalid value spec.devices[0].taints[0].value"}},
		"AV-03 no effect":                                     {new: slice(device("a", deviceTaint("k=v"))), want: []string{"Required value spec.devices[0].taints[0].effect"}},
		"AV-03 PreferNoSchedule is the API server's to judge": {new: slice(device("a", deviceTaint("k:PreferNoSchedule")))},
		"AV-03 an effect in other letters":                    {new: slice(device("a", deviceTaint("k:noexecute")))},
		"AV-03 all that is wrong is said at once": {
			new:  slice(device("a", deviceTaint("no key=-:x")), device("b", deviceTaint(":None"))),
			want: []string{"Invalid value spec.devices[0].taints[0].key", "Invalid value spec.devices[0].taints[0].value", "Required value spec.devices[1].taints[0].key"},
		},
		"AV-04 the same taint twice":                     {new: slice(device("a", deviceTaint("k=v:NoExecute"), deviceTaint("k=v:NoExecute"), deviceTaint("k=w:NoExecute")))},
		"AV-04 times past and future":                    {new: slice(device("a", deviceTaint("k:NoExecute", -1e9), deviceTaint("k:NoExecute", 1e9)))},
		"AV-05 an unknown effect of an old device":       {old: bad, new: bad},
		"AV-05 an old device in another place":           {old: bad, new: append(slice(device("b", deviceTaint("k:None"))), bad...)},
		"AV-05 an unknown effect on an old device":       {old: slice(device("a", deviceTaint("k:None"))), new: slice(device("a", deviceTaint("k:x")))},
		"AV-05 an unknown effect stays, another changes": {old: slice(device("a", deviceTaint("k:x"), deviceTaint("l:None"))), new: slice(device("a", deviceTaint("k:x")))},
		"AV-05 an unknown effect on a new device":        {old: bad, new: append(slice(device("b", deviceTaint("k:x"))), bad...)},
		"AV-05 the taints of another device":             {old: bad, new: slice(device("b", bad[0].Taints...)), want: []string{"Invalid value spec.devices[0].taints[0].key", "Invalid value spec.devices[0].taints[0].value"}},
		"AV-05 a time that changes is a change":          {old: slice(device("a", deviceTaint("no key:x", -1))), new: slice(device("a", deviceTaint("no key:x", -9))), want: []string{"Invalid value spec.devices[0].taints[0].key"}},
		"AV-05 a fraction that storage has cut is none":  {old: slice(device("a", deviceTaint("k:x", -1))), new: slice(device("a", deviceTaint("k:x", -0.5)))},
		"AV-05 of two with one name the first is meant":  {old: append(bad, slice(device("a", deviceTaint("k:None")))...), new: bad},
		"K05 a device with no name and one with any":     {new: slice(device("", deviceTaint("k:None")), device(`a/b*"ü`, deviceTaint("k:None")))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, deviceKinds(validation.ValidateSlice(tc.new, tc.old)))
		})
	}
}

func TestWhatStoodInASliceIsNeverRefused(t *testing.T) {
	t.Parallel()
	deviceEachWrite(t, func(t *testing.T, current, _ []validation.Device) {
		t.Helper()
		named := map[string]bool{}
		for i := range current {
			if named[current[i].Name] {
				return // refused by the API server for that
			}
			named[current[i].Name] = true
			for j := range current[i].Taints {
				current[i].Taints[j].Effect = "Unknown"
			}
		}
		require.Empty(t, validation.ValidateSlice(current, current))
	})
}

func TestARefusalOfASliceSaysWhatIsAllowed(t *testing.T) {
	t.Parallel()
	errs := validation.ValidateSlice(slice(device("a", deviceTaint("k:")), device("b", times(17)...)), nil)
	require.Len(t, errs, 2)
	require.Equal(t, `spec.devices[0].taints[0].effect: Required value: give one of None, NoSchedule and NoExecute`, errs[0].Error())
	require.Equal(t, `spec.devices[1].taints: Too many: 17: must have at most 16 items`, errs[1].Error())
}
