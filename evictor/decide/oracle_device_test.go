package decide

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// mustLoseDevices is Decide about devices told another way, as mustBeGone is for
// nodes: whether a pod that stays where it is must be gone at an instant because of
// its devices.
func mustLoseDevices(situation tracker.Situation, instant time.Time) bool {
	for _, used := range situation.Devices {
		for _, taint := range used.Taints {
			if !instant.Before(taint.TimeAdded) && !stillTolerated(used.Tolerations, taint, instant) {
				return true
			}
		}
	}
	return false
}

// stillTolerated is the documentation of device tolerations.
func stillTolerated(tolerations []resourcev1.DeviceToleration, taint tracker.Taint, instant time.Time) bool {
	var lasts []int64
	for _, toleration := range tolerations {
		exists := toleration.Operator == "Exists"
		equal := (toleration.Operator == "Equal" || toleration.Operator == "") && toleration.Value == taint.Value
		if (toleration.Key != "" && toleration.Key != taint.Key) || (!exists && !equal) {
			continue
		}
		switch {
		case toleration.Effect == "", toleration.Effect == "NoExecute" && toleration.TolerationSeconds == nil:
			return true
		case toleration.Effect == "NoExecute":
			lasts = append(lasts, *toleration.TolerationSeconds)
		}
	}
	if len(lasts) == 0 {
		return false
	}
	shortest := slices.Min(lasts)
	return shortest > 0 && (shortest > 9_223_372_036 || instant.Unix()-taint.TimeAdded.Unix() <= shortest)
}

func (g generator) deviceTaints() []tracker.Taint {
	var taints []tracker.Taint
	for range g.IntN(3) {
		source := tracker.Source{Kind: tracker.SourceSlice, Name: "s"}
		if rule := g.pick("", "r", "s", "t"); rule != "" {
			source = tracker.Source{Kind: tracker.SourceRule, Name: rule}
		}
		taints = append(taints, tracker.Taint{
			Key: g.pick("a", "b", "c"), Value: g.pick("", "x"), Effect: corev1.TaintEffectNoExecute,
			TimeAdded: g.instant(), Seen: noon, Stamped: true, Source: source,
		})
	}
	return taints
}

func (g generator) deviceToleration() resourcev1.DeviceToleration {
	native := g.toleration()
	return resourcev1.DeviceToleration{
		Key: native.Key, Value: g.pick("", "x"), TolerationSeconds: native.TolerationSeconds,
		Operator: resourcev1.DeviceTolerationOperator(g.pick("", "Equal", "Exists", "Exists", "Odd")),
		Effect:   resourcev1.DeviceTaintEffect(g.pick("", "NoExecute", "NoExecute", "NoSchedule")),
	}
}

func (g generator) devices() []tracker.TaintedDevice {
	var devices []tracker.TaintedDevice
	for range g.IntN(4) {
		used := tracker.TaintedDevice{
			ID:     device.ID{Driver: g.pick("d", "e"), Pool: g.pick("p", "q"), Name: g.pick("0", "1")},
			Claim:  tracker.ClaimName{Namespace: "ns", Name: g.pick("c", "d")},
			Taints: g.deviceTaints(),
		}
		for range g.IntN(4) {
			used.Tolerations = append(used.Tolerations, g.deviceToleration())
		}
		devices = append(devices, used)
	}
	return devices
}

// forRandomSituations is forRandom for pods that use devices too.
func forRandomSituations(t *testing.T, property func(g generator, situation tracker.Situation)) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	g := generator{rand.New(rand.NewPCG(seed, 0))}
	for range 20000 {
		situation := tracker.Situation{Pod: g.pod(), Devices: g.devices()}
		if g.IntN(3) == 0 {
			situation.Taints = g.taints()
		}
		property(g, situation)
	}
}

// leavesAt returns when a pod has to leave; never is the end of time.
func leavesAt(situation tracker.Situation) time.Time {
	if d := byDefault(noon, situation); d.Verdict == EvictAt {
		return d.At
	}
	return time.Unix(math.MaxInt32*1000, 0)
}

func TestDecideDeviceProperties(t *testing.T) {
	t.Parallel()

	t.Run("DE-23 DE-26 DE-27 it agrees with the oracle at every instant", func(t *testing.T) {
		t.Parallel()
		gone := 0
		forRandomSituations(t, func(g generator, situation tracker.Situation) {
			d := byDefault(noon, situation)
			pod := situation.Pod
			kept := pod.NodeName == "" || pod.Finished || pod.Terminating || pod.Mirror
			for _, instant := range []time.Time{g.instant(), g.instant().Add(seconds(30)), d.At, d.At.Add(-1), d.At.Add(1)} {
				if instant.Year() < 2000 {
					continue
				}
				want := mustBeGone(pod, situation.Taints, instant) || (!kept && mustLoseDevices(situation, instant))
				got := d.Verdict == EvictAt && !instant.Before(d.At)
				require.Equal(t, want, got, "%+v at %s: %+v", situation, instant, d)
				if want {
					gone++
				}
			}
		})
		require.Greater(t, gone, 10000, "the generator must make pods that leave")
	})

	t.Run("DE-21 another taint never postpones", func(t *testing.T) {
		t.Parallel()
		forRandomSituations(t, func(g generator, situation tracker.Situation) {
			more := situation
			more.Devices = append(slices.Clone(situation.Devices), g.devices()...)
			require.False(t, leavesAt(more).After(leavesAt(situation)))
			if len(situation.Devices) > 0 {
				more = situation
				more.Devices = slices.Clone(situation.Devices)
				more.Devices[0].Taints = append(slices.Clone(more.Devices[0].Taints), g.deviceTaints()...)
				require.False(t, leavesAt(more).After(leavesAt(situation)))
			}
		})
	})

	t.Run("DE-23 another toleration without end never hastens, wherever it stands", func(t *testing.T) {
		t.Parallel()
		forRandomSituations(t, func(g generator, situation tracker.Situation) {
			if len(situation.Devices) == 0 {
				return
			}
			before := leavesAt(situation)
			endless := g.deviceToleration()
			endless.TolerationSeconds = nil
			situation.Devices[0].Tolerations = slices.Insert(slices.Clone(situation.Devices[0].Tolerations), 0, endless)
			require.False(t, leavesAt(situation).Before(before))
		})
	})

	t.Run("DE-23 DE-28 the order of claims, devices and tolerations is irrelevant, also to the reasons", func(t *testing.T) {
		t.Parallel()
		forRandomSituations(t, func(g generator, situation tracker.Situation) {
			shuffled := situation
			shuffled.Devices = slices.Clone(situation.Devices)
			shuffle(g, shuffled.Devices)
			for i := range shuffled.Devices {
				shuffled.Devices[i].Tolerations = slices.Clone(shuffled.Devices[i].Tolerations)
				shuffle(g, shuffled.Devices[i].Tolerations)
			}
			a, b := byDefault(noon, situation), byDefault(noon, shuffled)
			require.Equal(t, a.At, b.At)
			require.Equal(t, sources(a), sources(b))
		})
	})

	t.Run("DE-66 every rule that would evict alone is among the reasons, once", func(t *testing.T) {
		t.Parallel()
		forRandomSituations(t, func(_ generator, situation tracker.Situation) {
			got := map[string]int{}
			for _, reason := range byDefault(noon, situation).Because {
				if reason.Taint.Source.Kind == tracker.SourceRule {
					got[reason.Taint.Source.Name]++
				}
			}
			for _, rule := range []string{"r", "s", "t"} {
				alone := 0
				if byDefault(noon, only(situation, rule)).Verdict == EvictAt {
					alone = 1
				}
				require.Equal(t, alone, got[rule], "rule %s in %+v", rule, situation)
			}
		})
	})

	t.Run("DE-54 NE-07 decided again later, by another leader, it is the same", func(t *testing.T) {
		t.Parallel()
		forRandomSituations(t, func(g generator, situation tracker.Situation) {
			first, again := byDefault(noon, situation), byDefault(g.instant().Add(time.Hour), situation)
			first.Wait, again.Wait = 0, 0
			require.Equal(t, first, again)
		})
	})

	t.Run("DE-28 the reasons are in order, none of them later than it has to be", func(t *testing.T) {
		t.Parallel()
		forRandomSituations(t, func(_ generator, situation tracker.Situation) {
			because := byDefault(noon, situation).Because
			require.True(t, slices.IsSortedFunc(because, compareReasons))
			for i := range because {
				for j := range because[:i] {
					require.NotEqual(t, because[i].Origin(), because[j].Origin())
				}
			}
		})
	})
}

func shuffle[T any](g generator, all []T) {
	g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
}

// sources returns where the reasons of a decision come from, in order.
func sources(d Decision) []tracker.Source {
	var from []tracker.Source
	for _, reason := range d.Because {
		from = append(from, reason.Taint.Source)
	}
	return from
}

// only returns a situation with the taints of one rule and no others.
func only(situation tracker.Situation, rule string) tracker.Situation {
	alone := tracker.Situation{Pod: situation.Pod}
	for _, used := range situation.Devices {
		used.Taints = slices.DeleteFunc(slices.Clone(used.Taints), func(taint tracker.Taint) bool {
			return taint.Source.Kind != tracker.SourceRule || taint.Source.Name != rule
		})
		alone.Devices = append(alone.Devices, used)
	}
	return alone
}
