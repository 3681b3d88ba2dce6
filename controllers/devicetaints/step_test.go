package devicetaints

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	noExecute  = resourcev1.DeviceTaintEffectNoExecute
	noSchedule = resourcev1.DeviceTaintEffectNoSchedule
)

func TestARuleHasATwinWhileItNeedsOne(t *testing.T) {
	w := newWorld(t)
	c := w.controller()
	w.give("degraded")
	w.put(rule("broken", "gpu-0", "degraded", noExecute))

	w.step(c, "broken")
	require.Equal(t, []string{"broken-noschedule gpu.example.com/*/gpu-0 degraded=v:NoSchedule of broken"}, w.pairs())
	require.Equal(t, w.stored["broken"].UID, w.stored["broken-noschedule"].OwnerReferences[0].UID)
	require.Equal(t, "resource.k8s.io/v1", w.stored["broken-noschedule"].OwnerReferences[0].APIVersion)
	_, events := w.taken()
	require.Equal(t, []string{"Normal NoSchedulePaired broken: The rule broken-noschedule (degraded=v:NoSchedule) keeps pods from coming back that tolerate the taint for a while"}, events)

	t.Run("nothing is asked or written while it is right", func(t *testing.T) {
		w.step(c, "broken")
		calls, _ := w.taken()
		require.Equal(t, []string{"get broken-noschedule"}, calls, "once, to see whom it is owned by")
		w.step(c, "broken")
		w.step(c, "broken-noschedule")
		calls, events := w.taken()
		require.Empty(t, calls)
		require.Empty(t, events)
	})
	t.Run("it follows the rule", func(t *testing.T) {
		changed := rule("broken", "gpu-1", "degraded", noExecute)
		changed.UID, changed.Spec.Taint.Value = w.stored["broken"].UID, "w"
		w.put(changed)
		w.step(c, "broken")
		require.Equal(t, []string{"broken-noschedule gpu.example.com/*/gpu-1 degraded=w:NoSchedule of broken"}, w.pairs())
	})
	t.Run("it comes back when somebody deletes it", func(t *testing.T) {
		w.drop("broken-noschedule")
		w.step(c, "broken")
		require.Len(t, w.pairs(), 1)
	})
	t.Run("it goes when the rule evicts nobody any more", func(t *testing.T) {
		changed := rule("broken", "gpu-1", "degraded", resourcev1.DeviceTaintEffectNone)
		changed.UID = w.stored["broken"].UID
		w.put(changed)
		w.taken()
		w.step(c, "broken")
		require.Empty(t, w.pairs())
		_, events := w.taken()
		require.Equal(t, []string{"Normal NoSchedulePairRemoved broken: Removed the rule broken-noschedule (degraded=w:NoSchedule): no claim is given a toleration that ends any more"}, events)
	})
	require.InDelta(t, 2, testutil.ToFloat64(c.Metrics.writes.WithLabelValues(OperationCreate)), 0)
	require.InDelta(t, 1, testutil.ToFloat64(c.Metrics.writes.WithLabelValues(OperationUpdate)), 0)
	require.InDelta(t, 1, testutil.ToFloat64(c.Metrics.writes.WithLabelValues(OperationDelete)), 0)
}

func TestRulesThatNeedNoTwin(t *testing.T) {
	w := newWorld(t)
	c := w.controller()
	w.give("degraded")
	w.put(rule("other-key", "gpu-0", "other", noExecute))
	w.put(rule("no-schedule", "gpu-0", "degraded", noSchedule))
	nobody := rule("nobody", "gpu-0", "degraded", noExecute)
	nobody.Spec.DeviceSelector = nil
	w.put(nobody)
	for _, name := range []string{"other-key", "no-schedule", "nobody", "gone"} {
		w.step(c, name)
	}
	calls, _ := w.taken()
	require.Empty(t, calls)
}

// A rule of a patch can be NoExecute for Tollgate alone: the scheduler already keeps pods
// off.
func TestADisguisedRuleNeedsNoTwin(t *testing.T) {
	w := newWorld(t)
	c := w.controller()
	w.give("degraded")
	w.windows("degraded")
	written := rule("gpu-broken-1", "gpu-0", "degraded", noSchedule)
	written.Labels = map[string]string{v1alpha1.LabelPatch: "uid"}
	written.Annotations = map[string]string{v1alpha1.AnnotationPatchEffect: string(noExecute)}
	written.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceSlicePatch", Name: "gpu-broken", UID: "uid", Controller: new(true),
	}}
	w.put(written)
	w.step(c, "gpu-broken-1")
	require.Empty(t, w.pairs())

	written = written.DeepCopy()
	written.Spec.Taint.Effect = noExecute
	w.put(written)
	w.step(c, "gpu-broken-1")
	require.NotEmpty(t, w.pairs(), "natively it evicts")
}

func TestATwinGoesWithThePolicy(t *testing.T) {
	w := newWorld(t)
	c := w.controller()
	w.give("degraded")
	w.put(rule("broken", "gpu-0", "degraded", noExecute))
	w.step(c, "broken")
	w.give()
	w.step(c, "broken")
	require.Empty(t, w.pairs())
}

func TestWhatOthersMadeIsLeftAlone(t *testing.T) {
	t.Run("a rule that has the name", func(t *testing.T) {
		w := newWorld(t)
		c := w.controller()
		w.give("degraded")
		w.put(rule("broken", "gpu-0", "degraded", noExecute))
		w.put(rule("broken-noschedule", "gpu-7", "mine", noSchedule))
		w.step(c, "broken")
		calls, events := w.taken()
		require.Equal(t, []string{"get broken-noschedule"}, calls)
		require.Len(t, events, 1)
		require.Contains(t, events[0], "Warning NoSchedulePairBlocked broken: ")
		w.give()
		w.step(c, "broken")
		calls, _ = w.taken()
		require.Equal(t, []string{"get broken-noschedule"}, calls)
	})
	t.Run("a rule that does the same", func(t *testing.T) {
		w := newWorld(t)
		c := w.controller()
		w.give("degraded")
		w.put(rule("broken", "gpu-0", "degraded", noExecute))
		w.put(rule("broken-noschedule", "gpu-0", "degraded", noSchedule))
		w.step(c, "broken")
		w.step(c, "broken")
		calls, events := w.taken()
		require.Equal(t, []string{"get broken-noschedule"}, calls)
		require.Empty(t, events)
	})
}

func TestOneRefusalDoesNotStopTheOthers(t *testing.T) {
	w := newWorld(t)
	c := w.controller()
	w.give("degraded")
	taints := map[string][]resourcev1.DeviceTaint{}
	for i := range 10 {
		taints[fmt.Sprintf("gpu-%d", i)] = []resourcev1.DeviceTaint{{Key: "degraded", Effect: noExecute}}
	}
	w.SetSlice(slice("s", taints), time.Unix(0, 0))
	for _, published := range w.PublishedEvicting()[:5] {
		w.refused[pairedRuleForPublished(&published).name] = true
	}
	_, err := c.reconcile(t.Context(), allPublished)
	require.True(t, apierrors.IsForbidden(err))
	require.Len(t, w.pairs(), 5)
}

func TestATwinGoesWithItsRule(t *testing.T) {
	long := strings.Repeat("a", 250)
	for sentence, name := range map[string]string{"by its name": "broken", "by its owner where the name is cut": long} {
		t.Run(sentence, func(t *testing.T) {
			for _, restarted := range []bool{false, true} {
				w := newWorld(t)
				c := w.controller()
				w.give("degraded")
				w.put(rule(name, "gpu-0", "degraded", noExecute))
				w.step(c, name)
				w.drop(name)
				if restarted {
					c = w.controller()
					w.step(c, pairedName(name))
				} else {
					w.step(c, name)
				}
				require.Empty(t, w.pairs(), "the garbage collector may not be one of the setters")
				_, events := w.taken()
				require.Contains(t, events[len(events)-1], "Normal NoSchedulePairRemoved "+pairedName(name))
			}
		})
	}
	t.Run("and stays while the rule is there", func(t *testing.T) {
		w := newWorld(t)
		c := w.controller()
		w.give("degraded")
		w.put(rule("broken", "gpu-0", "degraded", noExecute))
		w.step(c, "broken")
		w.DeleteRule("broken", w.stored["broken"].UID) // what is known lags behind
		w.step(c, "broken")
		w.step(c, "broken-noschedule")
		require.Len(t, w.pairs(), 1)
	})
	t.Run("and others do not", func(t *testing.T) {
		w := newWorld(t)
		c := w.controller()
		w.give("degraded")
		theirs := rule("broken-noschedule", "gpu-0", "degraded", noSchedule)
		theirs.OwnerReferences = []metav1.OwnerReference{{Kind: KindRule, Name: "broken", UID: "gone"}}
		w.put(theirs)
		owned := rule("other-noschedule", "gpu-0", "degraded", noSchedule)
		owned.Labels = map[string]string{Label: ofDevice}
		owned.OwnerReferences = []metav1.OwnerReference{{Kind: "ResourceSlice", Name: "broken", UID: "gone"}}
		w.put(owned)
		w.step(c, "broken")
		w.step(c, "broken-noschedule")
		w.step(c, "other-noschedule")
		require.Len(t, w.stored, 2)
	})
}

func TestACacheThatLagsCausesNoSecondWrite(t *testing.T) {
	w := newWorld(t)
	c := w.controller()
	w.give("degraded")
	w.put(rule("broken", "gpu-0", "degraded", noExecute))
	w.staleTracker = true
	w.step(c, "broken")
	w.taken()
	w.step(c, "broken")
	calls, _ := w.taken()
	require.Equal(t, []string{"get broken-noschedule"}, calls)
}

func TestFaultsAreTriedAgain(t *testing.T) {
	w := newWorld(t)
	c := w.controller()
	w.give("degraded")
	w.put(rule("broken", "gpu-0", "degraded", noExecute))
	w.fault = errors.New("no answer")
	_, err := c.reconcile(t.Context(), "broken")
	require.ErrorIs(t, err, w.fault)
	w.fault = nil
	w.step(c, "broken")
	w.fault = errors.New("no answer")
	w.give()
	_, err = c.reconcile(t.Context(), "broken")
	require.ErrorIs(t, err, w.fault)
}

func TestNothingIsDoneBlindly(t *testing.T) {
	w := newWorld(t)
	c := w.controller()
	w.put(rule("broken", "gpu-0", "degraded", noExecute))
	again, err := c.reconcile(t.Context(), "broken")
	require.NoError(t, err)
	require.Equal(t, policiesPause, again, "the policies are not known yet")
	w.give("degraded")
	w.synced = false
	again, err = c.reconcile(t.Context(), "broken")
	require.NoError(t, err)
	require.Equal(t, policiesPause, again, "the rules are not known yet")
	require.Empty(t, w.pairs())
}

func slice(name string, taints map[string][]resourcev1.DeviceTaint) tracker.Slice {
	s := tracker.Slice{Name: name, UID: types.UID(name), ResourceVersion: "1", Driver: "gpu.example.com", Pool: "node-1", Generation: 1}
	for device, list := range taints {
		s.Devices = append(s.Devices, tracker.Device{Name: device, Taints: list})
	}
	return s
}

func TestWhatDriversPublishIsPaired(t *testing.T) {
	w := newWorld(t)
	c := w.controller()
	w.give("degraded", "broken")
	w.SetSlice(slice("s", map[string][]resourcev1.DeviceTaint{
		"gpu-0": {{Key: "degraded", Value: "v", Effect: noExecute}, {Key: "degraded", Value: "v", Effect: noSchedule}},
		"gpu-1": {{Key: "broken", Effect: noExecute}, {Key: "other", Effect: noExecute}},
		"gpu-2": {},
	}), time.Unix(0, 0))
	w.step(c, "")
	text := func() (found []string) {
		for _, pair := range w.pairs() {
			name, rest, _ := strings.Cut(pair, " ")
			require.True(t, strings.HasPrefix(name, prefix))
			found = append(found, rest)
		}
		return found
	}
	require.ElementsMatch(t, []string{
		"gpu.example.com/node-1/gpu-0 degraded=v:NoSchedule of s", "gpu.example.com/node-1/gpu-1 broken=:NoSchedule of s",
	}, text())
	w.step(c, "")
	w.taken()
	w.step(c, "")
	calls, _ := w.taken()
	require.Empty(t, calls)

	w.SetSlice(tracker.Slice{
		Name: "s", UID: "s", ResourceVersion: "2", Driver: "gpu.example.com", Pool: "node-1", Generation: 1,
		Devices: []tracker.Device{{Name: "gpu-1", Taints: []resourcev1.DeviceTaint{{Key: "broken", Effect: noExecute}}}},
	}, time.Unix(1, 0))
	w.step(c, "")
	require.Equal(t, []string{"gpu.example.com/node-1/gpu-1 broken=:NoSchedule of s"}, text())

	w.give()
	w.step(c, "")
	require.Empty(t, w.pairs())
}

func TestPairsOfPublishedTaintsAreBounded(t *testing.T) {
	w := newWorld(t)
	c := w.controller()
	w.give("degraded")
	taints := map[string][]resourcev1.DeviceTaint{}
	for i := range maxPublished + 5 {
		taints[fmt.Sprintf("gpu-%d", i)] = []resourcev1.DeviceTaint{{Key: "degraded", Effect: noExecute}}
	}
	w.SetSlice(slice("s", taints), time.Unix(0, 0))
	w.step(c, "")
	require.Len(t, w.pairs(), maxPublished)
	require.InDelta(t, 5, testutil.ToFloat64(c.Metrics.left), 0)
	w.step(c, "")
	w.taken()
	w.step(c, "")
	calls, _ := w.taken()
	require.Empty(t, calls, "the same ones are chosen each time")
}

func TestTwinNames(t *testing.T) {
	require.Equal(t, "broken-noschedule", pairedName("broken"))
	long := strings.Repeat("a.", 126) + "b"
	require.Len(t, long, validation.DNS1123SubdomainMaxLength)
	for _, name := range []string{long, long[:252], strings.Repeat("a", 200) + strings.Repeat("b", 43)} {
		require.Empty(t, validation.IsDNS1123Subdomain(pairedName(name)), pairedName(name))
	}
	require.NotEqual(t, pairedName(long), pairedName(long[:251]))
}

func TestTheControllerFollowsRulesAndPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.controller()
		w.policy = policyset.None()
		w.put(rule("broken", "gpu-0", "degraded", noExecute))
		done := make(chan error)
		go func() { done <- c.Start(t.Context()) }()
		// The context of the test ends before its cleanup.
		t.Cleanup(func() { require.NoError(t, <-done) })
		synctest.Wait()
		require.Empty(t, w.pairs())

		w.give("degraded")
		w.changed <- struct{}{}
		synctest.Wait()
		require.Len(t, w.pairs(), 1)

		w.put(rule("second", "gpu-1", "degraded", noExecute))
		c.RuleChanged("second")
		synctest.Wait()
		require.Len(t, w.pairs(), 2)

		w.drop("second-noschedule")
		c.RuleChanged("second-noschedule")
		synctest.Wait()
		require.Len(t, w.pairs(), 2)

		w.SetSlice(slice("s", map[string][]resourcev1.DeviceTaint{"gpu-9": {{Key: "degraded", Effect: noExecute}}}), time.Now())
		time.Sleep(publishedPause)
		synctest.Wait()
		require.Len(t, w.pairs(), 3)
	})
}

func TestObjects(t *testing.T) {
	w := newWorld(t)
	w.put(rule("broken", "gpu-0", "degraded", noExecute))
	seen, ok := w.Rule("broken")
	require.True(t, ok)
	pairedRule := pairedRuleOf(&seen)
	object := pairedRule.object("resource.k8s.io/v1beta2")
	require.Equal(t, "resource.k8s.io/v1beta2", object.APIVersion)
	require.Equal(t, []metav1.OwnerReference{{APIVersion: "resource.k8s.io/v1beta2", Kind: "DeviceTaintRule", Name: "broken", UID: seen.UID}}, object.OwnerReferences)
	require.Equal(t, resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new("gpu.example.com"), Device: new("gpu-0")},
		Taint:          resourcev1.DeviceTaint{Key: "degraded", Value: "v", Effect: noSchedule},
	}, object.Spec)
}

func TestWhatIsLookedAtHasANameInLogs(t *testing.T) {
	t.Parallel()
	require.Equal(t, "DeviceTaintRule/a", describe("a"))
	require.Equal(t, "all ResourceSlices", describe(allPublished))
}
