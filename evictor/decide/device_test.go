package decide

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// gpu0 and gpu1 are devices.
var (
	gpu0 = device.ID{Driver: driverX, Pool: poolX, Name: "gpu-0"}
	gpu1 = device.ID{Driver: driverX, Pool: poolX, Name: "gpu-1"}
)

// ruleTaint returns the taint of a rule that counts from some seconds after noon.
func ruleTaint(rule, key string, n int) tracker.Taint {
	taint := taintSince(key, n)
	taint.Source = tracker.Source{Kind: tracker.SourceRule, Name: rule}
	return taint
}

// sliceTaint is the same for a slice.
func sliceTaint(key string, n int) tracker.Taint {
	taint := taintSince(key, n)
	taint.Source = tracker.Source{Kind: tracker.SourceSlice, Name: "slice"}
	return taint
}

// held returns a device that a pod uses through a claim.
func held(id device.ID, claim string, tolerations []resourcev1.DeviceToleration, taints ...tracker.Taint) tracker.TaintedDevice {
	return tracker.TaintedDevice{
		ID: id, Claim: tracker.ClaimName{Namespace: "ns", Name: claim}, Tolerations: tolerations, Taints: taints,
	}
}

// holding returns the situation of a pod with devices.
func holding(devices ...tracker.TaintedDevice) tracker.Situation {
	return tracker.Situation{Pod: podSince(-1000), Devices: devices}
}

// anyEffectToleration tolerates a key whatever the effect.
func anyEffectToleration(key string, seconds *int64) []resourcev1.DeviceToleration {
	return []resourcev1.DeviceToleration{{Key: key, Operator: resourcev1.DeviceTolerationOpExists, TolerationSeconds: seconds}}
}

func TestDecideDevices(t *testing.T) {
	t.Parallel()
	never := time.Time{}
	on := func(tolerations []resourcev1.DeviceToleration, taints ...tracker.Taint) tracker.Situation {
		return holding(held(gpu0, "c", tolerations, taints...))
	}
	less := func(s tracker.Situation, change func(*tracker.Pod)) tracker.Situation {
		change(&s.Pod)
		return s
	}
	noSchedule := []resourcev1.DeviceToleration{{Key: "gpu", Operator: "Exists", Effect: "NoSchedule"}}
	sick := sliceTaint("gpu", 10)
	for _, test := range []struct {
		name string
		in   tracker.Situation
		want time.Time
	}{
		{"DE-23 an untolerated taint means leaving when it was added", on(nil, sick), at(10)},
		{"DE-23 and so does a rule's", on(nil, ruleTaint("r", "gpu", 10)), at(10)},
		{"DE-23 a toleration without end means staying", on(tolerated("gpu", -1), sick), never},
		{"DE-23 a toleration for a while counts from the taint, from the end of its second", on(tolerated("gpu", 60), sick), at(71)},
		{"DE-23 a toleration of another key does not help", on(tolerated("net", -1), sick), at(10)},
		{"DE-23 a toleration of another effect does not help", on(noSchedule, sick), at(10)},
		{"DE-23 of several that match the shortest counts, wherever it stands", on(several(tolerated("gpu", 60), tolerated("gpu", 30), tolerated("net", 20)), sick), at(41)},
		{"DE-23 one without end is enough, behind others", on(several(tolerated("gpu", 30), tolerated("gpu", -1)), sick), never},
		{"DE-23 one without end is enough, before others", on(several(tolerated("gpu", -1), tolerated("gpu", 30)), sick), never},
		{"DE-24 a toleration of every effect is one of NoExecute", on(anyEffectToleration("gpu", nil), sick), never},
		{"DE-24 its seconds mean nothing", on(anyEffectToleration("gpu", new(int64(30))), sick), never},
		{"DE-24 and it outweighs one that ends", on(several(tolerated("gpu", 30), anyEffectToleration("", nil)), sick), never},
		{"DE-25 H06 zero seconds are no seconds", on(tolerated("gpu", 0), sick), at(10)},
		{"DE-25 H06 negative seconds are no seconds", on(seconded(math.MinInt64), sick), at(10)},
		{"DE-25 negative seconds are shorter than any", on(several(tolerated("gpu", 30), seconded(-5)), sick), at(10)},
		{"DE-31 H06 the greatest number of seconds is for ever", on(tolerated("gpu", math.MaxInt64), sick), never},
		{"DE-31 seconds that wrap to zero nanoseconds are for ever", on(tolerated("gpu", 1<<62), sick), never},
		{"DE-31 seconds that wrap to a negative number are for ever", on(tolerated("gpu", 9223372037), sick), never},
		{"DE-31 ten thousand million seconds are for ever", on(tolerated("gpu", 1e10), sick), never},
		{"DE-31 the longest that can be counted is counted", on(tolerated("gpu", 9223372036), sliceTaint("gpu", 0)), noon.Add(9223372036 * time.Second).Add(time.Second)},
		{"DE-21 taints of slice and rules add up, each has to be tolerated", on(tolerated("gpu", -1), sick, ruleTaint("r", "net", 20), ruleTaint("s", "gpu", 5)), at(20)},
		{"DE-21 the same key twice counts twice", on(tolerated("gpu", 60), sliceTaint("gpu", 10), ruleTaint("r", "gpu", 5)), at(66)},
		{
			"DE-26 the least of all taints of all devices of a claim",
			holding(held(gpu0, "c", several(tolerated("gpu", 60), tolerated("net", 30)), sliceTaint("gpu", 0), sliceTaint("net", 0)), held(gpu1, "c", tolerated("gpu", -1), sick)),
			at(31),
		},
		{
			"DE-26 one untolerated taint is enough although others are tolerated",
			on(tolerated("gpu", -1), sick, sliceTaint("net", 20)), at(20),
		},
		{
			"DE-27 the least of all claims of a pod",
			holding(held(gpu0, "a", tolerated("gpu", 60), sick), held(gpu1, "b", tolerated("gpu", 30), sick)), at(41),
		},
		{"DE-15 the tolerations of the pod do not count", less(on(nil, sick), func(p *tracker.Pod) { p.Tolerations = []corev1.Toleration{forever("")} }), at(10)},
		{"DE-29 H01 a taint of the future waits for its time", on(nil, ruleTaint("r", "gpu", 3600)), at(3600)},
		{"DE-29 and so does a toleration of it", on(tolerated("gpu", 60), ruleTaint("r", "gpu", 3600)), at(3661)},
		{"G09 a pod that came after the taint has no more time than others", less(on(tolerated("gpu", 60), sick), func(p *tracker.Pod) { p.Bound = at(50) }), at(71)},
		{"H02 a back-dated taint uses up the toleration", on(tolerated("gpu", 3600), ruleTaint("r", "gpu", -7200)), at(-3599)},
		{"DE-03 a pod without a node stays", less(on(nil, sick), func(p *tracker.Pod) { p.NodeName = "" }), never},
		{"DE-11 G08 a pod that is over stays", less(on(nil, sick), func(p *tracker.Pod) { p.Finished = true }), never},
		{"DE-12 a pod on its way out stays on it", less(on(nil, sick), func(p *tracker.Pod) { p.Terminating = true }), never},
		{"G08 a mirror pod stays", less(on(nil, sick), func(p *tracker.Pod) { p.Mirror = true }), never},
		{"G13 no device with a taint, no reason to leave", holding(), never},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := byDefault(noon, test.in)
			if test.want.IsZero() {
				require.Equal(t, Decision{}, got)
				return
			}
			require.Equal(t, EvictAt, got.Verdict)
			require.Equal(t, test.want, got.At)
			require.Equal(t, got.Because[0].At, got.At)
			require.Equal(t, max(test.want.Sub(noon), 0), got.Wait)
		})
	}
}

// seconded is tolerated for numbers that are negative.
func seconded(n int64) []resourcev1.DeviceToleration {
	tolerations := tolerated("gpu", 0)
	tolerations[0].TolerationSeconds = &n
	return tolerations
}

func TestDecideDevicesNeverEarly(t *testing.T) {
	t.Parallel()

	t.Run("H07 a stored time stands for any instant of its second", func(t *testing.T) {
		t.Parallel()
		for _, fraction := range []time.Duration{0, 1, time.Millisecond, 999 * time.Millisecond, time.Second - 1} {
			truly := noon.Add(fraction)
			taint := sliceTaint("gpu", 0)
			taint.TimeAdded = truly.Truncate(time.Second)
			got := byDefault(noon, holding(held(gpu0, "c", tolerated("gpu", 10), taint)))
			require.False(t, got.At.Before(truly.Add(10*time.Second)), "early after %s", fraction)
			require.Less(t, got.At.Sub(truly.Add(10*time.Second)), time.Second+1)
		}
	})

	t.Run("DE-30 a taint without a time counts from when it was first seen", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		taints := []resourcev1.DeviceTaint{{Key: "gpu", Effect: resourcev1.DeviceTaintEffectNoExecute}}
		tr.SetDevicesKnown(true)
		tr.SetSlice(tracker.Slice{Name: "s", UID: "s", Driver: driverX, Pool: poolX, Devices: []tracker.Device{{Name: "gpu-0", Taints: taints}}}, at(7))
		tr.SetClaim(tracker.ClaimOf(newClaim("c", "gpu-0", tolerated("gpu", 60), "p")))
		tr.SetPod(tracker.PodOf(using(newPod("p", "n"), "c")))
		situation, ok := tr.Lookup(tracker.Key{Namespace: "default", Name: "p", UID: "p-uid"})
		require.True(t, ok)
		require.Equal(t, at(68), byDefault(noon, situation).At)
	})

	t.Run("H01 how long a taint of the future is waited for can be bounded", func(t *testing.T) {
		t.Parallel()
		taint := ruleTaint("r", "gpu", 3600)
		taint.Seen = noon
		situation := holding(held(gpu0, "c", nil, taint))
		require.Equal(t, at(60), Rules{MaxHold: time.Minute}.Decide(noon, situation).At)
	})
}

func TestDecisionAboutDevicesExplainsItself(t *testing.T) {
	t.Parallel()

	t.Run("DE-28 at the same time rules come first, by name, then slices by device and position, then the node", func(t *testing.T) {
		t.Parallel()
		other := device.ID{Driver: "a.example.com", Pool: "z", Name: "z"}
		situation := holding(
			held(gpu1, "c", nil, sliceTaint("z", 0), sliceTaint("a", 0), ruleTaint("b", "k", 0)),
			held(gpu0, "c", nil, sliceTaint("m", 0), ruleTaint("a", "l", 0), ruleTaint("b", "k", 0)),
			held(other, "d", nil, sliceTaint("n", 0), ruleTaint("late", "k", 0), ruleTaint("soon", "k", -5)),
		)
		situation.Taints = []tracker.Taint{taintSince("net", -2000), taintSince("disk", -2000)}
		situation.Pod.Bound = at(0)
		got := byDefault(noon, situation)
		require.Equal(t, []string{
			"k:NoExecute since 2026-03-01T11:59:55Z by devicetaintrule soon on a.example.com/z/z in claim d",
			"l:NoExecute since 2026-03-01T12:00:00Z by devicetaintrule a on gpu.example.com/pool/gpu-0 in claim c",
			"k:NoExecute since 2026-03-01T12:00:00Z by devicetaintrule b on gpu.example.com/pool/gpu-0 in claim c",
			"k:NoExecute since 2026-03-01T12:00:00Z by devicetaintrule late on a.example.com/z/z in claim d",
			"n:NoExecute since 2026-03-01T12:00:00Z by resourceslice slice on a.example.com/z/z in claim d",
			"m:NoExecute since 2026-03-01T12:00:00Z by resourceslice slice on gpu.example.com/pool/gpu-0 in claim c",
			"z:NoExecute since 2026-03-01T12:00:00Z by resourceslice slice on gpu.example.com/pool/gpu-1 in claim c",
			"a:NoExecute since 2026-03-01T12:00:00Z by resourceslice slice on gpu.example.com/pool/gpu-1 in claim c",
			"disk:NoExecute since 2026-03-01T11:26:40Z",
			"net:NoExecute since 2026-03-01T11:26:40Z",
		}, got.Reasons())
	})

	t.Run("DE-28 a rule is one reason, with the device that is due first", func(t *testing.T) {
		t.Parallel()
		got := byDefault(noon, holding(
			held(gpu0, "c", tolerated("k", 60), ruleTaint("r", "k", 0)),
			held(gpu1, "d", tolerated("k", 30), ruleTaint("r", "k", 0)),
		))
		require.Len(t, got.Because, 1)
		require.Equal(t, gpu1, got.Because[0].Device)
		require.Equal(t, "d", got.Because[0].Claim.Name)
		require.True(t, got.Because[0].Tolerated)
		require.Equal(t, at(31), got.At)
	})

	t.Run("DE-28 a rule created anew is another reason", func(t *testing.T) {
		t.Parallel()
		one, two := ruleTaint("r", "k", 0), ruleTaint("r", "k", 0)
		one.Source.UID, two.Source.UID = "1", "2"
		require.Len(t, byDefault(noon, holding(held(gpu0, "c", nil, one), held(gpu1, "c", nil, two))).Because, 2)
	})

	t.Run("DE-14 DE-28 a taint of a device that two claims share is one reason, the same taint twice on it are two", func(t *testing.T) {
		t.Parallel()
		got := byDefault(noon, holding(
			held(gpu0, "b", nil, sliceTaint("k", 0), sliceTaint("k", 0)),
			held(gpu0, "a", nil, sliceTaint("k", 0), sliceTaint("k", 0)),
		))
		require.Len(t, got.Because, 2)
		require.Equal(t, "a", got.Because[0].Claim.Name)
	})

	t.Run("the node's own taint decides when it is due first", func(t *testing.T) {
		t.Parallel()
		situation := holding(held(gpu0, "c", tolerated("k", 60), ruleTaint("r", "k", 0)))
		situation.Taints = []tracker.Taint{taintSince("disk", 30)}
		got := byDefault(noon, situation)
		require.Equal(t, at(30), got.At)
		require.Equal(t, tracker.SourceNode, got.Because[0].Taint.Source.Kind)
		require.Zero(t, got.Because[0].Device)
		require.Len(t, got.Because, 2)
	})
}
