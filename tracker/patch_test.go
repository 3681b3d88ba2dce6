package tracker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// writtenFor makes a rule one that is written out for a patch, with the effect NoExecute
// for Tollgate alone if disguised.
func writtenFor(rule *resourcev1.DeviceTaintRule, patch tracker.PatchRef, disguised bool) {
	rule.Labels = map[string]string{v1alpha1.LabelPatch: string(patch.UID)}
	rule.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "tollgate.dev/v1alpha1", Kind: "ResourceSlicePatch", Name: patch.Name, UID: patch.UID, Controller: new(true),
	}}
	if disguised {
		rule.Annotations = map[string]string{v1alpha1.AnnotationPatchEffect: string(resourcev1.DeviceTaintEffectNoExecute)}
	}
}

func TestRuleOfPatch(t *testing.T) {
	t.Parallel()
	const none, noSchedule, noExecute = resourcev1.DeviceTaintEffectNone, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute
	patch := tracker.PatchRef{Name: "gpu-broken", UID: "patch-uid"}
	for _, test := range []struct {
		name           string
		native, effect resourcev1.DeviceTaintEffect
		change         func(*resourcev1.DeviceTaintRule)
		ours           bool
	}{
		{name: "label and owner make it the rule of the patch", native: noSchedule, effect: noExecute, ours: true},
		{name: "another effect than NoSchedule is as it stands", native: none, effect: none, ours: true},
		{name: "NoExecute stays NoExecute", native: noExecute, effect: noExecute, ours: true},
		{
			name: "an annotation with another effect says nothing", native: noSchedule, effect: noSchedule, ours: true,
			change: func(r *resourcev1.DeviceTaintRule) { r.Annotations[v1alpha1.AnnotationPatchEffect] = "None" },
		},
		{
			name: "without the annotation the effect is as it stands", native: noSchedule, effect: noSchedule, ours: true,
			change: func(r *resourcev1.DeviceTaintRule) { r.Annotations = nil },
		},
		{
			name: "the annotation alone means nothing", native: noSchedule, effect: noSchedule,
			change: func(r *resourcev1.DeviceTaintRule) { r.Labels, r.OwnerReferences = nil, nil },
		},
		{
			name: "the label alone means nothing", native: noSchedule, effect: noSchedule,
			change: func(r *resourcev1.DeviceTaintRule) { r.OwnerReferences = nil },
		},
		{
			name: "the owner alone means nothing", native: noSchedule, effect: noSchedule,
			change: func(r *resourcev1.DeviceTaintRule) { r.Labels = nil },
		},
		{
			name: "the label is of another patch", native: noSchedule, effect: noSchedule,
			change: func(r *resourcev1.DeviceTaintRule) { r.Labels[v1alpha1.LabelPatch] = "other" },
		},
		{
			name: "the owner does not control it", native: noSchedule, effect: noSchedule,
			change: func(r *resourcev1.DeviceTaintRule) { r.OwnerReferences[0].Controller = nil },
		},
		{
			name: "the owner is of another kind", native: noSchedule, effect: noSchedule,
			change: func(r *resourcev1.DeviceTaintRule) { r.OwnerReferences[0].Kind = "TaintPolicy" },
		},
		{
			name: "the owner is of another group", native: noSchedule, effect: noSchedule,
			change: func(r *resourcev1.DeviceTaintRule) { r.OwnerReferences[0].APIVersion = "resource.k8s.io/v1" },
		},
		{
			name: "the owner has no UID", native: noSchedule, effect: noSchedule,
			change: func(r *resourcev1.DeviceTaintRule) {
				r.OwnerReferences[0].UID, r.Labels[v1alpha1.LabelPatch] = "", ""
			},
		},
		{
			name: "a later version of the group is the same kind", native: noSchedule, effect: noExecute, ours: true,
			change: func(r *resourcev1.DeviceTaintRule) { r.OwnerReferences[0].APIVersion = "tollgate.dev/v1" },
		},
		{
			name: "other owners do not matter", native: noSchedule, effect: noExecute, ours: true,
			change: func(r *resourcev1.DeviceTaintRule) {
				r.OwnerReferences = append([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "n"}}, r.OwnerReferences...)
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			object := &resourcev1.DeviceTaintRule{Spec: resourcev1.DeviceTaintRuleSpec{Taint: deviceTaint("k", test.native)}}
			writtenFor(object, patch, true)
			if test.change != nil {
				test.change(object)
			}
			got := tracker.RuleOf(object)
			require.Equal(t, test.effect, got.Taint.Effect)
			require.Equal(t, test.native, got.NativeTaint().Effect)
			if test.ours {
				require.Equal(t, patch, got.Patch)
			} else {
				require.Zero(t, got.Patch)
			}
			require.Equal(t, test.native, object.Spec.Taint.Effect, "what was read is not written to")
		})
	}
}

func TestPatchRules(t *testing.T) {
	t.Parallel()
	tr := devicesKnown()
	written := func(name, version string, patch tracker.PatchRef) tracker.Rule {
		object := &resourcev1.DeviceTaintRule{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-rule", ResourceVersion: version},
			Spec:       resourcev1.DeviceTaintRuleSpec{DeviceSelector: &resourcev1.DeviceTaintSelector{}, Taint: noExecute("k")},
		}
		if patch.Name != "" {
			writtenFor(object, patch, false)
		}
		return tracker.RuleOf(object)
	}
	a, former, b := tracker.PatchRef{Name: "a", UID: "1"}, tracker.PatchRef{Name: "a", UID: "0"}, tracker.PatchRef{Name: "b", UID: "2"}
	require.Empty(t, tr.PatchRules("a"))
	require.Empty(t, tr.UIDOf(a.Source()))
	tr.SetRule(written("a-2", "1", a), start)
	tr.SetRule(written("a-1", "1", former), start)
	tr.SetRule(written("other", "1", tracker.PatchRef{}), start)
	require.Equal(t, []string{"a-1", "a-2"}, tr.PatchRules("a"))
	require.Equal(t, []tracker.PatchRef{former, a}, tr.Patches())
	for _, known := range []tracker.PatchRef{a, former} {
		require.Equal(t, known.UID, tr.UIDOf(known.Source()))
	}
	require.Empty(t, tr.UIDOf(tracker.PatchRef{Name: "a", UID: "2"}.Source()))

	tr.SetRule(written("a-1", "2", b), start)
	require.Equal(t, []string{"a-2"}, tr.PatchRules("a"))
	require.Equal(t, []string{"a-1"}, tr.PatchRules("b"))
	tr.DeleteRule("a-1", "uid-of-rule")
	tr.SetRule(written("a-2", "2", tracker.PatchRef{}), start)
	require.Empty(t, tr.Patches())
	require.Empty(t, tr.PatchRules(""))
}

func TestStandingOfAPatch(t *testing.T) {
	t.Parallel()
	tr := devicesKnown()
	patch := tracker.PatchRef{Name: "p", UID: "u"}
	for i, effect := range []resourcev1.DeviceTaintEffect{
		resourcev1.DeviceTaintEffectNone, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute,
	} {
		object := &resourcev1.DeviceTaintRule{
			ObjectMeta: metav1.ObjectMeta{
				Name: "p-" + string(rune('a'+i)), UID: "rule-uid", ResourceVersion: "1", CreationTimestamp: metav1.NewTime(start.Add(time.Duration(i) * time.Minute)),
			},
			Spec: resourcev1.DeviceTaintRuleSpec{Taint: deviceTaint("k", effect)},
		}
		writtenFor(object, patch, true)
		tr.SetRule(tracker.RuleOf(object), start.Add(time.Hour))
	}
	tr.SetRule(rule("other", 1, nil, noExecute("k")), start)
	named := func(name string) tracker.Source { return tracker.Source{Kind: tracker.SourcePatch, Name: name} }
	first, last, ok := tr.Standing(named("p"), "k")
	require.True(t, ok)
	require.Equal(t, []string{"p-b", "p-d"}, []string{first.Source.Name, last.Source.Name})
	require.Equal(t, patch.Source(), first.Author())
	require.True(t, first.From(tracker.SourcePatch, "p"))
	require.True(t, first.From(tracker.SourceRule, "p-b"))
	require.False(t, first.From(tracker.SourceRule, "p"))
	_, _, ok = tr.Standing(named("p"), "other")
	require.False(t, ok)
	_, _, ok = tr.Standing(named(""), "k")
	require.False(t, ok)
}

func TestStanding(t *testing.T) {
	t.Parallel()
	tr := devicesKnown()
	tr.SetNode(tracker.Node{Name: "n", UID: "n", Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}}, start)
	for name, effect := range map[string]resourcev1.DeviceTaintEffect{"r": resourcev1.DeviceTaintEffectNoExecute, "none": resourcev1.DeviceTaintEffectNone} {
		tr.SetRule(tracker.Rule{Name: name, Taint: deviceTaint("k", effect)}, start)
	}
	for _, test := range []struct {
		source tracker.Source
		key    string
		stands bool
	}{
		{tracker.Source{Kind: tracker.SourceNode, Name: "n"}, "k", true},
		{tracker.Source{Kind: tracker.SourceNode, Name: "n"}, "l", false},
		{tracker.Source{Kind: tracker.SourceNode, Name: "r"}, "k", false},
		{tracker.Source{Kind: tracker.SourceRule, Name: "r"}, "k", true},
		{tracker.Source{Kind: tracker.SourceRule, Name: "r"}, "l", false},
		{tracker.Source{Kind: tracker.SourceRule, Name: "none"}, "k", false},
		{tracker.Source{Kind: tracker.SourceRule, Name: "n"}, "k", false},
		{tracker.Source{Kind: tracker.SourceSlice, Name: "n"}, "k", false},
	} {
		first, last, ok := tr.Standing(test.source, test.key)
		require.Equal(t, test.stands, ok, test)
		if ok {
			require.Equal(t, test.key, first.Key)
			require.Equal(t, first, last)
		}
	}
}

// The scheduler keeps pods off a device by a rule that evicts for Tollgate alone: nothing
// else has to.
func TestDisguisedRuleIsItsOwnTwin(t *testing.T) {
	t.Parallel()
	tr := devicesKnown()
	tr.SetSlice(sliceOf("s", 1, 1, tracker.Device{Name: "a"}), start)
	tr.SetClaim(claimFor("c", 1, []string{"u"}, gpu("a")))
	tr.SetPod(user("u", 1, tracker.PodClaim{Name: "c"}))
	object := &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "p-1", UID: "rule-uid", ResourceVersion: "1"},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new("d")}, Taint: deviceTaint("k", resourcev1.DeviceTaintEffectNoExecute),
		},
	}
	writtenFor(object, tracker.PatchRef{Name: "p", UID: "patch-uid"}, true)
	tr.SetRule(tracker.RuleOf(object), start)
	require.Len(t, held(tr, "u"), 1)
	require.False(t, tr.DeviceTwin(gpu("a"), "k", object.Spec.Taint.Value), "natively it evicts")

	object.Spec.Taint.Effect, object.ResourceVersion = resourcev1.DeviceTaintEffectNoSchedule, "2"
	require.Equal(t, keysOf("u"), tr.SetRule(tracker.RuleOf(object), start), "what waited for a twin is looked at")
	require.Len(t, held(tr, "u"), 1)
	require.True(t, tr.DeviceTwin(gpu("a"), "k", object.Spec.Taint.Value))
}

// A rule that a patch made anew takes over under its name has appeared, whatever time it
// has: what was approved for the former patch is not for this one.
func TestARuleThatAnotherPatchTakesOverHasAppeared(t *testing.T) {
	t.Parallel()
	object := &resourcev1.DeviceTaintRule{Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: &resourcev1.DeviceTaintSelector{},
		Taint:          resourcev1.DeviceTaint{Key: "k", Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.NewTime(start))},
	}}
	object.Name, object.UID, object.ResourceVersion = "r", "rule-uid", "1"
	writtenFor(object, tracker.PatchRef{Name: "p", UID: "former"}, false)
	tr := tracker.New()
	tr.SetRule(tracker.RuleOf(object), start)

	later := start.Add(time.Hour)
	object = object.DeepCopy()
	object.ResourceVersion, object.OwnerReferences = "2", nil
	writtenFor(object, tracker.PatchRef{Name: "p", UID: "anew"}, false)
	tr.SetRule(tracker.RuleOf(object), later)
	taint, ok := tr.RuleTaint("r")
	require.True(t, ok)
	require.Equal(t, later, taint.Appeared())
}
