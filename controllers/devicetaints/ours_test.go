package devicetaints

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/tracker"
)

func TestALabelAloneMakesNoTwin(t *testing.T) {
	labeled := func(name, taintKey string, effect resourcev1.DeviceTaintEffect, kind, owner string) *resourcev1.DeviceTaintRule {
		r := rule(name, "gpu-0", taintKey, effect)
		r.Labels = map[string]string{Label: ofRule}
		if kind != "" {
			r.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: owner, UID: "gone"}}
		}
		return r
	}
	const published = prefix + "00112233445566778899"
	for sentence, theirs := range map[string]*resourcev1.DeviceTaintRule{
		"it evicts":                        labeled("gpu-noschedule", "governed", noExecute, KindRule, "gpu"),
		"it has no owner":                  labeled("gpu-noschedule", "governed", noSchedule, "", ""),
		"its owner has another name":       labeled("gpu-noschedule", "governed", noSchedule, KindRule, "other"),
		"its owner is of another kind":     labeled("gpu-noschedule", "governed", noSchedule, "Node", "gpu"),
		"its owner is a slice":             labeled("gpu-noschedule", "governed", noSchedule, kindSlice, "gpu"),
		"it evicts by a published name":    labeled(published, "governed", noExecute, kindSlice, "s"),
		"a published name is of a rule":    labeled(published, "governed", noSchedule, KindRule, "gpu"),
		"only its prefix is a published's": labeled(prefix+"mine", "governed", noSchedule, kindSlice, "s"),
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t)
			c := w.controller()
			w.give("degraded")
			w.put(theirs)
			want := theirs.DeepCopy()
			w.step(c, theirs.Name)
			w.step(c, "gpu") // No such rule exists.
			w.step(c, "")
			w.put(rule("gpu", "gpu-9", "degraded", noExecute))
			w.taken()
			w.step(c, "gpu")
			if theirs.Name == "gpu-noschedule" {
				_, events := w.taken()
				require.Len(t, events, 1)
				require.Contains(t, events[0], "Warning NoSchedulePairBlocked gpu: ")
			}
			w.give()
			w.step(c, "gpu")
			w.step(c, "")
			require.Equal(t, want, w.stored[theirs.Name])
		})
	}
}

func TestATwinGetsBackWhatMarksIt(t *testing.T) {
	for sentence, strip := range map[string]func(*resourcev1.DeviceTaintRule){
		"its label":               func(r *resourcev1.DeviceTaintRule) { r.Labels = nil },
		"the value of its label":  func(r *resourcev1.DeviceTaintRule) { r.Labels[Label] = "x" },
		"its owner":               func(r *resourcev1.DeviceTaintRule) { r.OwnerReferences = nil },
		"its label and its owner": func(r *resourcev1.DeviceTaintRule) { r.Labels, r.OwnerReferences = nil, nil },
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t)
			c := w.controller()
			clock := clocktesting.NewFakeClock(time.Unix(0, 0))
			c.Local = clock
			w.give("degraded")
			w.put(rule("broken", "gpu-0", "degraded", noExecute))
			w.step(c, "broken")
			w.step(c, "broken")
			want := w.stored["broken-noschedule"].DeepCopy()
			stripped := want.DeepCopy()
			strip(stripped)
			w.put(stripped)
			w.step(c, "broken")
			clock.Step(recheck)
			w.step(c, "broken")
			got := w.stored["broken-noschedule"]
			require.Equal(t, want.Labels, got.Labels)
			require.Equal(t, want.OwnerReferences, got.OwnerReferences)
		})
	}
}

func TestWhatIsGoneIsForgotten(t *testing.T) {
	for sentence, next := range map[string]string{"its rule is looked at": "a", "it is looked at itself": "a-noschedule"} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t)
			c := w.controller()
			w.give("degraded")
			w.put(rule("a", "gpu-9", "degraded", noExecute))
			w.step(c, "a")
			w.step(c, "a")
			require.Len(t, c.readResults, 1)
			w.drop("a")
			w.drop("a-noschedule") // The garbage collector was first.
			w.step(c, next)
			require.Empty(t, c.readResults)
		})
	}
}

func TestWhatIsNeeded(t *testing.T) {
	w := newWorld(t)
	c := w.controller()
	w.give("degraded")
	w.put(rule("broken", "gpu-0", "degraded", noExecute))
	s := slice("s", map[string][]resourcev1.DeviceTaint{"gpu-0": {{Key: "other", Effect: noExecute}, {Key: "degraded", Effect: noExecute}}})
	w.SetSlice(s, time.Unix(0, 0))
	w.step(c, "broken")
	needs := NeedsOf(w.policy, false)
	carrier, _ := w.Rule("broken")
	pairedRule := w.stored["broken-noschedule"].DeepCopy()
	require.True(t, NeededByRule(needs, pairedRule, &carrier))

	for sentence, change := range map[string]func(pairedRule *resourcev1.DeviceTaintRule, carrier *tracker.Rule){
		"another device": func(pairedRule *resourcev1.DeviceTaintRule, _ *tracker.Rule) {
			pairedRule.Spec.DeviceSelector.Device = new("gpu-7")
		},
		"another key":              func(pairedRule *resourcev1.DeviceTaintRule, _ *tracker.Rule) { pairedRule.Spec.Taint.Key = "governed" },
		"another name":             func(pairedRule *resourcev1.DeviceTaintRule, _ *tracker.Rule) { pairedRule.Name = "mine" },
		"no label":                 func(pairedRule *resourcev1.DeviceTaintRule, _ *tracker.Rule) { pairedRule.Labels = nil },
		"a replaced owner":         func(_ *resourcev1.DeviceTaintRule, carrier *tracker.Rule) { carrier.UID = "new" },
		"an owner that evicts not": func(_ *resourcev1.DeviceTaintRule, carrier *tracker.Rule) { carrier.Taint.Effect = noSchedule },
	} {
		t.Run(sentence, func(t *testing.T) {
			pairedRule, carrier := pairedRule.DeepCopy(), carrier
			change(pairedRule, &carrier)
			require.False(t, NeededByRule(needs, pairedRule, &carrier))
		})
	}

	published := pairedRuleForPublished(new(w.PublishedEvicting()[0]))
	object := published.object("resource.k8s.io/v1")
	require.True(t, NeededBySlice(needs, object, &s))
	s.UID = "new"
	require.False(t, NeededBySlice(needs, object, &s))
	s.UID, s.Devices[0].Name = "s", "gpu-1"
	require.False(t, NeededBySlice(needs, object, &s), "another device")
	w.give()
	s.Devices[0].Name = "gpu-0"
	require.False(t, NeededBySlice(NeedsOf(w.policy, true), object, &s), "no policy needs it")
	require.False(t, NeededByRule(NeedsOf(w.policy, true), pairedRule, &carrier))
}
