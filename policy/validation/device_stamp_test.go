package validation_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

func TestStampSlice(t *testing.T) {
	t.Parallel()
	one := func(spec string, offset ...float64) []validation.Device {
		return slice(device("a", deviceTaint(spec, offset...)))
	}
	type times map[[2]int]float64 // seconds from now, by device and taint

	for name, tc := range map[string]struct {
		old, new []validation.Device
		want     times
	}{
		"AV-06 a taint without a time gets now":                 {new: one("k:NoExecute"), want: times{{0, 0}: 0}},
		"AV-06 every effect gets a time":                        {new: slice(device("a", deviceTaint("k:None"), deviceTaint("k:NoSchedule"), deviceTaint("k:x"))), want: times{{0, 0}: 0, {0, 1}: 0, {0, 2}: 0}},
		"a zero time is none":                                   {new: slice(device("a", resourcev1.DeviceTaint{Key: "k", Effect: "None", TimeAdded: &metav1.Time{}})), want: times{{0, 0}: 0}},
		"AV-04 a time that is given is respected":               {new: one("k:NoExecute", -3600)},
		"DE-29 so is one in the future":                         {new: one("k:NoExecute", 3600)},
		"a fraction of a second is cut off":                     {new: one("k:NoExecute", -99.5), want: times{{0, 0}: -100}},
		"no devices":                                            {},
		"a slice without taints":                                {old: slice(device("a")), new: slice(device("a"), device("b"))},
		"nothing when the taints go":                            {old: one("k:NoExecute", -10), new: slice(device("a"))},
		"a taint joins another":                                 {old: one("k:NoExecute", -10), new: slice(device("a", deviceTaint("k:NoExecute", -10), deviceTaint("l:NoExecute"))), want: times{{0, 1}: 0}},
		"AV-06 a driver that gives no time: the old one":        {old: one("k=v:NoExecute", -100), new: one("k=v:NoExecute"), want: times{{0, 0}: -100}},
		"AV-06 the API server's time: the old one":              {old: one("k=v:NoExecute", -100), new: one("k=v:NoExecute", 0), want: times{{0, 0}: -100}},
		"AV-06 it may be 5 s ahead of Tollgate's clock":         {old: one("k:NoExecute", -100), new: one("k:NoExecute", 5), want: times{{0, 0}: -100}},
		"AV-06 or 5 s behind":                                   {old: one("k:NoExecute", -100), new: one("k:NoExecute", -5), want: times{{0, 0}: -100}},
		"6 s is a choice":                                       {old: one("k:NoExecute", -100), new: one("k:NoExecute", -6)},
		"6 s ahead is a choice":                                 {old: one("k:NoExecute", -100), new: one("k:NoExecute", 6)},
		"a time near now that is older than the old one stands": {old: one("k:NoExecute", 30), new: one("k:NoExecute", -1)},
		"a time may be moved back":                              {old: one("k:NoExecute", -100), new: one("k:NoExecute", -200)},
		"of an old taint without a time nothing is to be had":   {old: one("k:NoExecute"), new: one("k:NoExecute", -1)},
		"an old taint without a time is left alone":             {old: one("k:NoExecute"), new: slice(device("a", deviceTaint("k:NoExecute"), deviceTaint("l:NoExecute"))), want: times{{0, 1}: 0}},
		"another effect is another taint":                       {old: one("k:NoSchedule", -100), new: one("k:NoExecute"), want: times{{0, 0}: 0}},
		"another value is another taint":                        {old: one("k=v:NoExecute", -100), new: one("k=w:NoExecute"), want: times{{0, 0}: 0}},
		"another key is another taint":                          {old: one("k:NoExecute", -100), new: one("l:NoExecute"), want: times{{0, 0}: 0}},
		"another device is another taint":                       {old: one("k:NoExecute", -100), new: slice(device("b", deviceTaint("k:NoExecute"))), want: times{{0, 0}: 0}},
		"a device that moves keeps its times":                   {old: one("k:NoExecute", -100), new: slice(device("b"), device("a", deviceTaint("k:NoExecute", 0))), want: times{{1, 0}: -100}},
		"taints that change places keep theirs":                 {old: slice(device("a", deviceTaint("k:NoExecute", -1), deviceTaint("l:NoExecute", -2))), new: slice(device("a", deviceTaint("l:NoExecute", -2), deviceTaint("k:NoExecute", -1)))},
		"K03 of two of a kind the older time counts":            {old: slice(device("a", deviceTaint("k:NoExecute", -50), deviceTaint("k:NoExecute", -90))), new: one("k:NoExecute"), want: times{{0, 0}: -90}},
		"K03 two of a kind with two times stay as they are":     {old: slice(device("a", deviceTaint("k:NoExecute", -50), deviceTaint("k:NoExecute", -90))), new: slice(device("a", deviceTaint("k:NoExecute", -90), deviceTaint("k:NoExecute", -50)))},
		"K03 a second of a kind":                                {old: one("k:NoExecute", -50), new: slice(device("a", deviceTaint("k:NoExecute", -50), deviceTaint("k:NoExecute"))), want: times{{0, 1}: -50}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := times{}
			for _, stamp := range validation.StampSlice(tc.new, tc.old, deviceNow.Add(300*time.Millisecond)) {
				got[[2]int{stamp.Device, stamp.Taint}] = stamp.TimeAdded.Sub(deviceNow).Seconds()
			}
			if tc.want == nil {
				tc.want = times{}
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestStampingASliceAgainChangesNothing(t *testing.T) {
	t.Parallel()
	deviceEachWrite(t, func(t *testing.T, current, old []validation.Device) {
		t.Helper()
		current = deviceApply(current, validation.StampSlice(current, old, deviceNow))
		require.Empty(t, validation.StampSlice(current, old, deviceNow), "%v, was %v", current, old)
	})
}

func TestStampingTouchesWhatIsAddedOrChanged(t *testing.T) {
	t.Parallel()
	deviceEachWrite(t, func(t *testing.T, current, old []validation.Device) {
		t.Helper()
		stamps := validation.StampSlice(current, old, deviceNow)
		stamped := deviceApply(current, stamps)
		for i := range stamped {
			// A name that stands twice is invalid; which of the two is meant is open.
			if twice(old, stamped[i].Name) {
				continue
			}
			for j, got := range stamped[i].Taints {
				if stood(old, stamped[i].Name, current[i].Taints[j]) {
					require.Equal(t, current[i].Taints[j], got, "it stood there: %v, was %v", current, old)
					continue
				}
				require.NotNil(t, got.TimeAdded)
				require.Zero(t, got.TimeAdded.Nanosecond())
			}
		}
	})
}

func twice(list []validation.Device, name string) bool {
	n := 0
	for i := range list {
		if list[i].Name == name {
			n++
		}
	}
	return n > 1
}

// stood reports whether a device had the taint as it is, fractions of seconds aside.
func stood(old []validation.Device, name string, t resourcev1.DeviceTaint) bool {
	return slices.ContainsFunc(old, func(d validation.Device) bool {
		return d.Name == name && slices.ContainsFunc(d.Taints, func(o resourcev1.DeviceTaint) bool {
			same := o.TimeAdded == nil && t.TimeAdded == nil ||
				o.TimeAdded != nil && t.TimeAdded != nil && o.TimeAdded.Unix() == t.TimeAdded.Unix()
			return o.Key == t.Key && o.Value == t.Value && o.Effect == t.Effect && same
		})
	})
}

func TestStampRule(t *testing.T) {
	t.Parallel()
	list := func(spec string, offset ...float64) *resourcev1.DeviceTaint { return new(deviceTaint(spec, offset...)) }
	const unchanged = 1e9

	for name, tc := range map[string]struct {
		old, new *resourcev1.DeviceTaint
		want     float64 // seconds from now
	}{
		"AV-06 a rule without a time":                      {new: list("k:NoExecute"), want: 0},
		"AV-06 a rule with the API server's time":          {new: list("k:NoExecute", -1), want: unchanged},
		"AV-06 a rule with another time":                   {new: list("k:NoExecute", -3600), want: unchanged},
		"DE-29 a rule with a time in the future":           {new: list("k:NoExecute", 3600), want: unchanged},
		"a fraction of a second is cut off":                {new: list("k:NoExecute", -0.5), want: -1},
		"AV-17 the effect changes and the time is the old": {old: list("k:None", -100), new: list("k:NoExecute", -100), want: 0},
		"AV-17 to None":                                    {old: list("k:NoExecute", -100), new: list("k:None", -100), want: 0},
		"AV-17 the effect changes, and so does the time":   {old: list("k:None", -100), new: list("k:NoExecute", -50), want: unchanged},
		"AV-17 the old time is in the future":              {old: list("k:None", 100), new: list("k:NoExecute", 100), want: 0},
		"AV-17 the key changes":                            {old: list("k:NoExecute", -100), new: list("l:NoExecute", -100), want: unchanged},
		"AV-17 the value changes":                          {old: list("k=v:NoExecute", -100), new: list("k=w:NoExecute", -100), want: unchanged},
		"AV-18 a write without a time":                     {old: list("k:NoExecute", -100), new: list("k:NoExecute"), want: 0},
		"AV-18 a write with the API server's time":         {old: list("k:NoExecute", -100), new: list("k:NoExecute", 0), want: unchanged},
		"nothing changes":                                  {old: list("k:NoExecute", -100), new: list("k:NoExecute", -100), want: unchanged},
		"neither had a time":                               {old: list("k:None"), new: list("k:NoExecute"), want: 0},
		"the old one had none":                             {old: list("k:None"), new: list("k:NoExecute", -100), want: unchanged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, ok := validation.StampRule(tc.new, tc.old, deviceNow.Add(300*time.Millisecond))
			require.Equal(t, tc.want != unchanged, ok)
			if !ok {
				return
			}
			require.InDelta(t, tc.want, at.Sub(deviceNow).Seconds(), 0)
			tc.new.TimeAdded = &at
			_, again := validation.StampRule(tc.new, tc.old, deviceNow.Add(300*time.Millisecond))
			require.False(t, again, "stamping the outcome changes nothing")
		})
	}
}

func BenchmarkSlice(b *testing.B) {
	var old, current []validation.Device
	for i := range 64 {
		taints := []resourcev1.DeviceTaint{deviceTaint("gpu.example.com/unhealthy=xid-79:NoExecute", -100), deviceTaint("gpu.example.com/slow:None", -10)}
		old = append(old, device("gpu-"+string(rune('a'+i)), taints...))
		current = append(current, device("gpu-"+string(rune('a'+i)), taints...))
	}
	current[1].Taints = []resourcev1.DeviceTaint{deviceTaint("gpu.example.com/unhealthy=xid-79:NoExecute", 0)}
	b.Run("stamp", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			validation.StampSlice(current, old, deviceNow)
		}
	})
	b.Run("validate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			validation.ValidateSlice(current, old)
		}
	})
	b.Run("warnings", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			validation.SliceWarnings(current, nil, deviceNow)
		}
	})
}

func FuzzSlice(f *testing.F) {
	f.Add("gpu", "NoExecute", "v", int64(0), uint8(7), uint64(1))
	f.Add("", "", "", int64(1)<<62, uint8(0), uint64(3))
	f.Fuzz(func(t *testing.T, key, effect, value string, offset int64, shape uint8, seed uint64) {
		current, old := deviceDrawWrite(rand.New(rand.NewPCG(seed, 0)))
		odd := resourcev1.DeviceTaint{Key: key, Effect: resourcev1.DeviceTaintEffect(effect), Value: value}
		if shape&1 != 0 {
			odd.TimeAdded = new(metav1.NewTime(deviceNow.Add(time.Duration(offset))))
		}
		if shape&2 != 0 {
			old = append(old, device("odd", odd))
		}
		if shape&4 != 0 {
			current = append(current, device("odd", odd, odd))
		}
		stamped := deviceApply(current, validation.StampSlice(current, old, deviceNow))
		validation.ValidateSlice(stamped, old)
		validation.SliceWarnings(stamped, old, deviceNow)
		require.Empty(t, validation.StampSlice(stamped, old, deviceNow), "stamped twice")
		spec := &resourcev1.DeviceTaintRuleSpec{Taint: odd, DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: &key, Pool: &value, Device: &effect}}
		require.Empty(t, validation.ValidateRule(spec, spec.DeepCopy()))
		validation.ValidateRule(spec, nil)
		validation.RuleWarnings(spec, nil, deviceNow)
	})
}
