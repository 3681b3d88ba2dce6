package nodetaints

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// ttlWorld is a world with a running TTLController.
type ttlWorld struct {
	*world

	controller *TTLController
	metrics    *prometheus.CounterVec
}

// taints returns the keys of the taints of a node.
func (w *ttlWorld) taints(name string) []string {
	keys := []string{}
	w.locked(func() {
		for _, t := range w.nodes[name].Spec.Taints {
			keys = append(keys, t.Key)
		}
	})
	return keys
}

// runTTL runs test while a controller runs.
func runTTL(t *testing.T, test func(t *testing.T, w *ttlWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &ttlWorld{world: newWorld(), metrics: NewTTLMetrics(prometheus.NewPedanticRegistry())}
		w.controller = NewTTL(w.base(), TTLOptions{
			Nodes: nodeAPI{world: w.world}, Patches: patchAPI{world: w.world}, Rules: w.rules, Deleter: w, Metrics: w.metrics,
		})
		lead(t, w.controller.Start, func() { test(t, w) })
	})
}

func limited(name, key string, ttl time.Duration) v1alpha1.TaintPolicy {
	return v1alpha1.TaintPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + key + ttl.String()), Generation: 1},
		Spec: v1alpha1.TaintPolicySpec{
			Taints: []v1alpha1.TaintSelector{{Key: key}, {Key: key, Target: v1alpha1.TaintTargetDevice}},
			TTL:    &metav1.Duration{Duration: ttl},
		},
	}
}

// ttlTaint returns a taint of an age.
func ttlTaint(key string, effect corev1.TaintEffect, age time.Duration) corev1.Taint {
	return corev1.Taint{Key: key, Effect: effect, TimeAdded: new(metav1.NewTime(time.Now().Add(-age).UTC().Truncate(time.Second)))}
}

func ttlNode(name string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), Labels: map[string]string{"pool": "banana"}},
		Spec:       corev1.NodeSpec{Taints: taints},
	}
}

func TestATaintOfANodeIsRemovedWhenItsTimeIsOver(t *testing.T) {
	runTTL(t, func(t *testing.T, w *ttlWorld) {
		t.Helper()
		w.enforce(limited("day", "maintenance", 24*time.Hour))
		w.set(ttlNode("n",
			ttlTaint("first", corev1.TaintEffectNoSchedule, 100*time.Hour),
			ttlTaint("maintenance", corev1.TaintEffectNoSchedule, 23*time.Hour),
			ttlTaint("last", corev1.TaintEffectNoSchedule, 100*time.Hour),
			ttlTaint("maintenance", corev1.TaintEffectNoExecute, 22*time.Hour)))
		rest(59 * time.Minute)
		require.Equal(t, []string{"first", "maintenance", "last", "maintenance"}, w.taints("n"))
		rest(2 * time.Minute)
		require.Equal(t, []string{"first", "last", "maintenance"}, w.taints("n"))
		rest(time.Hour)
		require.Equal(t, []string{"first", "last"}, w.taints("n"))
		require.Equal(t, "Node/n Normal TaintExpired: Removed, because the taint maintenance:NoSchedule is older than the ttl 24h0m0s of TaintPolicy/day", w.reported()[0])
		require.InDelta(t, 2, testutil.ToFloat64(w.metrics.WithLabelValues(sourceNode)), 0)
	})
}

func TestWhatStays(t *testing.T) {
	registering := limited("registers", "dedicated", time.Minute)
	registering.Spec.Register = []v1alpha1.TaintRegistration{{
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "banana"}},
		Taints:       []v1alpha1.RegisteredTaint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}},
	}}
	runTTL(t, func(t *testing.T, w *ttlWorld) {
		t.Helper()
		w.enforce(limited("short", "maintenance", time.Minute), limited("system", corev1.TaintNodeUnreachable, time.Minute), registering)
		w.set(ttlNode("without a time", corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}))
		w.set(ttlNode("registered", ttlTaint("dedicated", corev1.TaintEffectNoSchedule, time.Hour)))
		w.set(ttlNode("of the system", ttlTaint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute, time.Hour)))
		w.set(ttlNode("not governed", ttlTaint("other", corev1.TaintEffectNoExecute, time.Hour)))
		rest(24 * time.Hour)
		for _, name := range []string{"without a time", "registered", "of the system", "not governed"} {
			require.Len(t, w.taints(name), 1, name)
		}
		valued := ttlNode("another value than registered", ttlTaint("dedicated", corev1.TaintEffectNoSchedule, time.Hour))
		valued.Spec.Taints[0].Value = "x"
		w.set(valued)
		rest(time.Second)
		require.Empty(t, w.taints(valued.Name))
	})
}

func TestATwinOfANodeStaysWhileWhatItIsForDoes(t *testing.T) {
	runTTL(t, func(t *testing.T, w *ttlWorld) {
		t.Helper()
		policy := limited("a", "maintenance", time.Minute)
		policy.Spec.Taints = []v1alpha1.TaintSelector{{Key: "maintenance", Effects: []corev1.TaintEffect{corev1.TaintEffectNoSchedule}}}
		w.enforce(policy)
		n := ttlNode("n", ttlTaint("maintenance", corev1.TaintEffectNoExecute, time.Hour), ttlTaint("maintenance", corev1.TaintEffectNoSchedule, time.Hour))
		n.Annotations = map[string]string{v1alpha1.AnnotationTwins: string(n.UID) + ":maintenance="}
		w.set(n)
		rest(time.Hour)
		require.Len(t, w.taints("n"), 2)

		n = n.DeepCopy()
		n.Annotations = nil // The taint is not a paired one.
		w.set(n)
		rest(time.Second)
		require.Len(t, w.taints("n"), 1)
	})
}

func TestAPolicyThatComesLaterCounts(t *testing.T) {
	runTTL(t, func(t *testing.T, w *ttlWorld) {
		t.Helper()
		w.set(ttlNode("n", ttlTaint("maintenance", corev1.TaintEffectNoSchedule, time.Hour)))
		w.rules.SetRule(rule("r", "maintenance", time.Hour), time.Now())
		rest(time.Hour)
		require.Len(t, w.taints("n"), 1)
		w.enforce(limited("a", "maintenance", time.Minute))
		rest(time.Second)
		require.Empty(t, w.taints("n"))
		require.Empty(t, w.rules.Rules())
	})
}

func rule(name, key string, age time.Duration) tracker.Rule {
	return tracker.Rule{
		Name: name, UID: types.UID("uid of " + name), ResourceVersion: "1",
		Taint: resourcev1.DeviceTaint{Key: key, Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.NewTime(time.Now().Add(-age)))},
	}
}

func TestARuleIsDeletedWhenItsTimeIsOver(t *testing.T) {
	runTTL(t, func(t *testing.T, w *ttlWorld) {
		t.Helper()
		w.enforce(limited("hour", "degraded", time.Hour))
		w.mu.Lock()
		w.rules.SetRule(rule("r", "degraded", 30*time.Minute), time.Now())
		w.rules.SetRule(rule("other", "other", 24*time.Hour), time.Now())
		w.mu.Unlock()
		w.controller.RuleChanged("r")
		w.controller.RuleChanged("other")
		rest(29 * time.Minute)
		require.Len(t, w.rules.Rules(), 2)
		rest(2 * time.Minute)
		require.Equal(t, []string{"other"}, w.rules.Rules())
		require.Equal(t, "DeviceTaintRule/r Normal TaintExpired: Removed, because the taint degraded:NoExecute is older than the ttl 1h0m0s of TaintPolicy/hour", w.reported()[0])
		w.controller.RuleChanged("r") // as it is told when it is gone
		rest(time.Hour)
		require.Len(t, w.reported(), 1)
	})
}

func TestATwinStaysWhileWhatItIsForDoes(t *testing.T) {
	runTTL(t, func(t *testing.T, w *ttlWorld) {
		t.Helper()
		w.enforce(limited("hour", "degraded", time.Hour))
		w.mu.Lock()
		w.rules.SetRule(rule("r-noschedule", "degraded", 2*time.Hour), time.Now())
		w.paired = map[string]bool{"r-noschedule": true}
		w.mu.Unlock()
		w.controller.RuleChanged("r-noschedule")
		rest(30 * time.Minute)
		require.Len(t, w.rules.Rules(), 1)
		w.mu.Lock()
		w.paired = nil
		w.mu.Unlock()
		rest(time.Hour)
		require.Empty(t, w.rules.Rules())
	})
}

// Otherwise the removed taint would be added again at once.
func TestRulesOfPatchesStay(t *testing.T) {
	runTTL(t, func(t *testing.T, w *ttlWorld) {
		t.Helper()
		w.enforce(limited("hour", "degraded", time.Hour))
		written := rule("gpu-broken-1", "degraded", 2*time.Hour)
		written.Patch = tracker.PatchRef{Name: "gpu-broken", UID: "uid"}
		w.mu.Lock()
		w.rules.SetRule(written, time.Now())
		w.mu.Unlock()
		w.controller.RuleChanged("gpu-broken-1")
		rest(3 * time.Hour)
		require.Len(t, w.rules.Rules(), 1)
	})
}

func TestWhatWasChangedMeanwhileStays(t *testing.T) {
	maintenance := func(age time.Duration) corev1.Taint {
		return ttlTaint("maintenance", corev1.TaintEffectNoSchedule, age)
	}
	for sentence, meanwhile := range map[string]*corev1.Node{
		"the taint was set again": ttlNode("n", maintenance(time.Minute)),
		"another taint is there":  ttlNode("n", ttlTaint("other", corev1.TaintEffectNoSchedule, 0), maintenance(48*time.Hour)),
		"it was removed":          ttlNode("n"),
		"it is another node":      {ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "another"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{maintenance(48 * time.Hour)}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld()
			c := NewTTL(w.base(), TTLOptions{Nodes: nodeAPI{world: w}, Metrics: NewTTLMetrics(prometheus.NewPedanticRegistry())})
			w.current = w.current.WithTaints([]v1alpha1.TaintPolicy{limited("day", "maintenance", 24*time.Hour)})
			w.set(ttlNode("n", maintenance(48*time.Hour)))
			w.interleave = func() { w.locked(func() { w.nodes["n"] = meanwhile }) }
			_, err := c.reconcile(t.Context(), ttlKey{sourceNode, "n"})
			require.ErrorContains(t, err, "remove taints of node n")
			require.Equal(t, taintTexts(meanwhile), w.taintsOf("n"))
			require.Empty(t, w.reported())
		})
	}
}

func TestWhatFailsIsTriedAgain(t *testing.T) {
	runTTL(t, func(t *testing.T, w *ttlWorld) {
		t.Helper()
		w.err = errors.New("away")
		w.enforce(limited("a", "maintenance", time.Minute))
		w.set(ttlNode("n", ttlTaint("maintenance", corev1.TaintEffectNoSchedule, time.Hour)))
		w.mu.Lock()
		w.rules.SetRule(rule("r", "maintenance", time.Hour), time.Now())
		w.mu.Unlock()
		w.controller.RuleChanged("r")
		rest(time.Minute)
		require.Len(t, w.taints("n"), 1)
		w.mu.Lock()
		w.err = nil
		w.mu.Unlock()
		rest(time.Minute)
		require.Empty(t, w.taints("n"))
		require.Empty(t, w.rules.Rules())
	})
}

func TestWhatIsLookedAtHasANameInLogs(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Node/a", ttlKey{sourceNode, "a"}.describe())
	require.Equal(t, "DeviceTaintRule/a", ttlKey{sourceRule, "a"}.describe())
	require.Equal(t, "ResourceSlicePatch/a", ttlKey{sourcePatch, "a"}.describe())
}

// patched returns the keys of the taints of each existing patch.
func (w *ttlWorld) patched() map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := map[string][]string{}
	for name, patch := range w.patches {
		found[name] = []string{}
		for i := range patch.Spec.Devices.Taints {
			found[name] = append(found[name], patch.Spec.Devices.Taints[i].Key)
		}
	}
	return found
}

func TestTaintsOfPatchesAreRemovedWhenTheirTimeIsOver(t *testing.T) {
	runTTL(t, func(t *testing.T, w *ttlWorld) {
		t.Helper()
		w.enforce(limited("hour", "degraded", time.Hour))
		age := func(age time.Duration) *metav1.Time {
			return new(metav1.NewTime(time.Now().Add(-age).UTC().Truncate(time.Second)))
		}
		degraded := func(at *metav1.Time) v1alpha1.PatchedTaint {
			return v1alpha1.PatchedTaint{Key: "degraded", Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: at}
		}
		patch := func(name string, attributes bool, recorded []v1alpha1.PatchedTaint, taints ...v1alpha1.PatchedTaint) {
			p := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), ResourceVersion: "1"}}
			p.Spec.Devices.Taints, p.Status.Taints = taints, recorded
			if attributes {
				p.Spec.Devices.Attributes = map[resourcev1.QualifiedName]v1alpha1.NullableDeviceAttribute{"a/b": {StringValue: new("c")}}
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.store(p)
		}
		other := v1alpha1.PatchedTaint{Key: "other", Effect: resourcev1.DeviceTaintEffectNoSchedule, TimeAdded: age(24 * time.Hour)}
		half := []v1alpha1.PatchedTaint{degraded(age(30 * time.Minute))}
		patch("only", false, nil, degraded(age(30*time.Minute)))
		patch("by-its-status", false, half, degraded(nil))
		patch("beside-another", false, half, other, degraded(nil), other)
		patch("with-attributes", true, nil, degraded(age(30*time.Minute)))
		patch("not-recorded-yet", false, nil, degraded(nil))
		patch("of-another-key", false, nil, other)
		rest(29 * time.Minute)
		require.Len(t, w.patched(), 6)
		require.Empty(t, w.reported())
		rest(2 * time.Minute)
		require.Equal(t, map[string][]string{
			"beside-another": {"other", "other"}, "with-attributes": {}, "not-recorded-yet": {"degraded"}, "of-another-key": {"other"},
		}, w.patched())
		require.ElementsMatch(t, []string{
			"ResourceSlicePatch/only Normal TaintExpired: Removed, because the taint degraded:NoExecute is older than the ttl 1h0m0s of TaintPolicy/hour",
			"ResourceSlicePatch/by-its-status Normal TaintExpired: Removed, because the taint degraded:NoExecute is older than the ttl 1h0m0s of TaintPolicy/hour",
			"ResourceSlicePatch/beside-another Normal TaintExpired: Removed, because the taint degraded:NoExecute is older than the ttl 1h0m0s of TaintPolicy/hour",
			"ResourceSlicePatch/with-attributes Normal TaintExpired: Removed, because the taint degraded:NoExecute is older than the ttl 1h0m0s of TaintPolicy/hour",
		}, w.reported())
	})
}

func TestAPatchThatWasWrittenMeanwhileIsLookedAtAgain(t *testing.T) {
	runTTL(t, func(t *testing.T, w *ttlWorld) {
		t.Helper()
		w.enforce(limited("hour", "degraded", time.Hour))
		p := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "uid", ResourceVersion: "1"}}
		p.Spec.Devices.Taints = []v1alpha1.PatchedTaint{{
			Key: "degraded", Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.NewTime(time.Now().Add(-2 * time.Hour).Truncate(time.Second))),
		}}
		w.mu.Lock()
		w.err = apierrors.NewConflict(schema.GroupResource{}, "p", errors.New("changed"))
		w.store(p)
		w.mu.Unlock()
		rest(time.Second)
		require.Contains(t, w.patched(), "p")
		w.mu.Lock()
		w.err = nil
		w.mu.Unlock()
		rest(time.Minute)
		require.Empty(t, w.patched())
		require.Len(t, w.reported(), 1)
	})
}
