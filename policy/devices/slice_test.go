package devices_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/policy/devices"
)

func TestValidateSlice(t *testing.T) {
	t.Parallel()
	bad := slice(device("a", taint("no key=no value:PreferNoSchedule")))

	for name, tc := range map[string]struct {
		old, new []devices.Device
		want     []string
	}{
		"no devices":                                          {},
		"AV-01 16 taints on a device":                         {new: slice(device("a", times(16)...))},
		"AV-01 17 taints on a device":                         {new: slice(device("a"), device("b", times(17)...)), want: []string{"Too many spec.devices[1].taints"}},
		"AV-01 16 on each of two devices":                     {new: slice(device("a", times(16)...), device("b", times(16)...))},
		"AV-01 a seventeenth is added":                        {old: slice(device("a", times(16)...)), new: slice(device("a", times(17)...)), want: []string{"Too many spec.devices[0].taints"}},
		"AV-01 what is wrong inside too many is not said":     {new: slice(device("a", append(times(17), taint("no key:x"))...)), want: []string{"Too many spec.devices[0].taints"}},
		"AV-02 64 devices, one with a taint":                  {new: many(63, device("a", taint("k:None")))},
		"AV-02 65 devices, one with a taint":                  {new: many(64, device("a", taint("k:None"))), want: []string{"Too many spec.devices"}},
		"AV-02 128 devices without taints":                    {new: many(128)},
		"AV-02 128 devices, of which one gets a taint":        {old: many(127, device("a")), new: many(127, device("a", taint("k:None"))), want: []string{"Too many spec.devices"}},
		"AV-02 a sixty-fifth device":                          {old: many(63, device("a", taint("k:None"))), new: many(64, device("a", taint("k:None"))), want: []string{"Too many spec.devices"}},
		"AV-02 what stood there":                              {old: many(64, device("a", taint("k:None"))), new: many(64, device("a", taint("k:None")))},
		"AV-03 all effects":                                   {new: slice(device("a", taint("k:None"), taint("k:NoSchedule"), taint("example.com/k=v:NoExecute")))},
		"AV-03 no key":                                        {new: slice(device("a", taint(":None"))), want: []string{"Required value spec.devices[0].taints[0].key"}},
		"AV-03 a key that is no label name":                   {new: slice(device("a", taint("k:None"), taint("a/b/c:None"))), want: []string{"Invalid value spec.devices[0].taints[1].key"}},
		"AV-03 a value that is no label value":                {new: slice(device("a", taint("k=-:None"))), want: []string{"Invalid value spec.devices[0].taints[0].value"}},
		"AV-03 no effect":                                     {new: slice(device("a", taint("k=v"))), want: []string{"Required value spec.devices[0].taints[0].effect"}},
		"AV-03 PreferNoSchedule is the API server's to judge": {new: slice(device("a", taint("k:PreferNoSchedule")))},
		"AV-03 an effect in other letters":                    {new: slice(device("a", taint("k:noexecute")))},
		"AV-03 all that is wrong is said at once": {
			new:  slice(device("a", taint("no key=-:x")), device("b", taint(":None"))),
			want: []string{"Invalid value spec.devices[0].taints[0].key", "Invalid value spec.devices[0].taints[0].value", "Required value spec.devices[1].taints[0].key"},
		},
		"AV-04 the same taint twice":                     {new: slice(device("a", taint("k=v:NoExecute"), taint("k=v:NoExecute"), taint("k=w:NoExecute")))},
		"AV-04 times past and future":                    {new: slice(device("a", taint("k:NoExecute", -1e9), taint("k:NoExecute", 1e9)))},
		"AV-05 an unknown effect of an old device":       {old: bad, new: bad},
		"AV-05 an old device in another place":           {old: bad, new: append(slice(device("b", taint("k:None"))), bad...)},
		"AV-05 an unknown effect on an old device":       {old: slice(device("a", taint("k:None"))), new: slice(device("a", taint("k:x")))},
		"AV-05 an unknown effect stays, another changes": {old: slice(device("a", taint("k:x"), taint("l:None"))), new: slice(device("a", taint("k:x")))},
		"AV-05 an unknown effect on a new device":        {old: bad, new: append(slice(device("b", taint("k:x"))), bad...)},
		"AV-05 the taints of another device":             {old: bad, new: slice(device("b", bad[0].Taints...)), want: []string{"Invalid value spec.devices[0].taints[0].key", "Invalid value spec.devices[0].taints[0].value"}},
		"AV-05 a time that changes is a change":          {old: slice(device("a", taint("no key:x", -1))), new: slice(device("a", taint("no key:x", -9))), want: []string{"Invalid value spec.devices[0].taints[0].key"}},
		"AV-05 a fraction that storage has cut is none":  {old: slice(device("a", taint("k:x", -1))), new: slice(device("a", taint("k:x", -0.5)))},
		"AV-05 of two with one name the first is meant":  {old: append(bad, slice(device("a", taint("k:None")))...), new: bad},
		"K05 a device with no name and one with any":     {new: slice(device("", taint("k:None")), device(`a/b*"ü`, taint("k:None")))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, kinds(devices.ValidateSlice(tc.new, tc.old)))
		})
	}
}

func TestWhatStoodInASliceIsNeverRefused(t *testing.T) {
	t.Parallel()
	eachWrite(t, func(t *testing.T, current, _ []devices.Device) {
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
		require.Empty(t, devices.ValidateSlice(current, current))
	})
}

func TestARefusalOfASliceSaysWhatIsAllowed(t *testing.T) {
	t.Parallel()
	errs := devices.ValidateSlice(slice(device("a", taint("k:")), device("b", times(17)...)), nil)
	require.Len(t, errs, 2)
	require.Equal(t, `spec.devices[0].taints[0].effect: Required value: give one of None, NoSchedule and NoExecute`, errs[0].Error())
	require.Equal(t, `spec.devices[1].taints: Too many: 17: must have at most 16 items`, errs[1].Error())
}
