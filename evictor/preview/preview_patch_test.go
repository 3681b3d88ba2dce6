package preview

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

var broken = tracker.PatchRef{Name: "gpu-broken", UID: "patch-uid"}

// writtenOut returns a rule of the patch for a device of driver d, as it is written where
// Kubernetes' own evictor runs.
func writtenOut(name, dev string, seconds int) tracker.Rule {
	taint := deviceTaint("k", seconds)
	taint.Effect = resourcev1.DeviceTaintEffectNoSchedule
	return tracker.RuleOf(&resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: "rule-uid", CreationTimestamp: metav1.NewTime(at(seconds)),
			Labels:      map[string]string{v1alpha1.LabelPatch: string(broken.UID)},
			Annotations: map[string]string{v1alpha1.AnnotationPatchEffect: "NoExecute"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceSlicePatch", Name: broken.Name, UID: broken.UID, Controller: new(true),
			}},
		},
		Spec: resourcev1.DeviceTaintRuleSpec{DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new("d"), Device: &dev}, Taint: taint},
	})
}

// patched is a patch that taints devices of driver d.
func patched(devices ...string) tracker.PatchedTaints {
	p := tracker.PatchedTaints{Patch: broken, Taints: []resourcev1.DeviceTaint{deviceTaint("k", -60)}}
	for _, name := range devices {
		selector, _ := device.SelectorOf(&resourcev1.DeviceTaintSelector{Driver: new("d"), Device: &name})
		p.Selectors = append(p.Selectors, selector)
	}
	return p
}

// patchSite has a pod on each of three devices, two of which the patch taints.
func patchSite() *site {
	s := newSite(clocktesting.NewFakePassiveClock(noon))
	s.tracker.SetDevicesKnown(true)
	for _, name := range []string{"x0", "x1", "x2"} {
		p, claim := userOf(name, name)
		s.tracker.SetClaim(claim)
		s.tracker.SetPod(p)
	}
	s.tracker.SetRule(writtenOut("gpu-broken-0", "x0", -60), at(-60))
	s.tracker.SetRule(writtenOut("gpu-broken-1", "x1", -60), at(-60))
	return s
}

func TestWhatAPatchHits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		devices []string
		struck  int
	}{
		{"a patch that stands as it is written hits nobody anew", []string{"x0", "x1"}, 0},
		{"one that is widened hits who comes in", []string{"x0", "x1", "x2"}, 1},
		{"one that is narrowed hits nobody", []string{"x0"}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := patchSite()
			changes, err := s.view.Patch(patched(test.devices...), noon)
			require.NoError(t, err)
			struck := s.view.Strikes(changes)
			hit := 0
			for i := range struck {
				if struck[i].By(governed, noon) {
					hit++
					require.Equal(t, broken.Source(), struck[i].Taints(governed, noon)[0].Source)
				}
			}
			require.Equal(t, test.struck, hit)
		})
	}
	t.Run("an earlier time hits again, as a taint of the patch and no other", func(t *testing.T) {
		t.Parallel()
		s := newSite(clocktesting.NewFakePassiveClock(noon))
		s.tracker.SetDevicesKnown(true)
		p, claim := userOf("x0", "x0", resourcev1.DeviceToleration{
			Key: "k", Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: new(int64(3600)),
		})
		s.tracker.SetClaim(claim)
		s.tracker.SetPod(p)
		s.tracker.SetRule(writtenOut("gpu-broken-0", "x0", -60), at(-60))
		same, err := s.view.Patch(patched("x0"), noon)
		require.NoError(t, err)
		require.Empty(t, same)
		sooner := patched("x0")
		sooner.Taints[0] = deviceTaint("k", -600)
		changes, err := s.view.Patch(sooner, noon)
		require.NoError(t, err)
		struck := s.view.Strikes(changes)
		require.Len(t, struck, 1)
		require.True(t, struck[0].By(governed, noon))
	})
	t.Run("nothing is foretold before devices are known", func(t *testing.T) {
		t.Parallel()
		_, err := (&View{Tracker: tracker.New(), PodsKnown: yes, DevicesKnown: no}).Patch(patched("x0"), noon)
		require.ErrorIs(t, err, ErrUnread)
	})
}

func TestPodsOfAPatchLeave(t *testing.T) {
	t.Parallel()
	s := patchSite()
	approved := Approved{Carrier: tracker.Source{Kind: tracker.SourcePatch, Name: broken.Name}, Key: "k", From: at(-100), Until: at(100), Pods: 5}
	query := Query{Window: tenMinutes, Governs: governed}
	require.Equal(t, 2, s.ledger.Others(query))
	query.Approved = []Approved{approved}
	require.Zero(t, s.ledger.Others(query), "what was approved for the patch does not count")
	query.Approved[0].Carrier.Name = "other"
	require.Equal(t, 2, s.ledger.Others(query))

	for _, name := range []string{"x0", "x1"} {
		p, _ := userOf(name, name)
		s.leave(p)
	}
	s.tracker.DeleteRule("gpu-broken-0", "rule-uid")
	require.Equal(t, 2, s.ledger.Left(tracker.Source{Kind: tracker.SourcePatch, Name: broken.Name}, "k", at(-10)))
	require.Equal(t, 1, s.ledger.Left(tracker.Source{Kind: tracker.SourceRule, Name: "gpu-broken-1"}, "k", at(-10)))
	require.Zero(t, s.ledger.Left(tracker.Source{Kind: tracker.SourceRule, Name: broken.Name}, "k", at(-10)))
}

func TestStandingOfAPatch(t *testing.T) {
	t.Parallel()
	s := patchSite()
	s.tracker.SetRule(writtenOut("gpu-broken-2", "x2", -5), at(-5))
	for _, source := range []tracker.Source{broken.Source(), {Kind: tracker.SourcePatch, Name: broken.Name}} {
		first, last, ok := s.tracker.Standing(source, "k")
		require.True(t, ok)
		require.Equal(t, at(-60), first.Written(noon))
		require.Equal(t, at(-5), last.Written(noon), "it reaches further since then")
	}
}
