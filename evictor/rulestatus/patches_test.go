package rulestatus

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

const brokenUID = types.UID("gpu-broken-uid")

// patchWorld is a world whose controller keeps the status of patches.
type patchWorld struct {
	*world

	patches *Patches

	mu     sync.Mutex
	stored map[string]*v1alpha1.ResourceSlicePatch
	said   []string
}

// inPatchWorld runs test in a bubble of its own, with the patch gpu-broken.
func inPatchWorld(t *testing.T, effect resourcev1.DeviceTaintEffect, test func(*patchWorld)) {
	t.Helper()
	inWorld(t, func(w *world) {
		p := &patchWorld{world: w, stored: map[string]*v1alpha1.ResourceSlicePatch{}}
		p.patches = NewPatches(w.tracker, w.forget)
		w.options.Kind, w.options.Tracker, w.options.Applier = KindPatch, p.patches, p
		p.edit(func(patch *v1alpha1.ResourceSlicePatch) {
			patch.Spec.Devices.Taints = []v1alpha1.PatchedTaint{{Key: "k", Effect: effect}}
		})
		test(p)
	})
}

// edit changes the patch as a user does, or creates it.
func (p *patchWorld) edit(change func(*v1alpha1.ResourceSlicePatch)) {
	p.mu.Lock()
	patch := p.stored["gpu-broken"].DeepCopy()
	if patch == nil {
		patch = &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{
			Name: "gpu-broken", UID: brokenUID, CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second)),
		}}
	}
	change(patch)
	patch.Generation++
	p.mu.Unlock()
	p.keep(patch)
	synctest.Wait()
}

// keep stores a patch, and tells of it as the watch does.
func (p *patchWorld) keep(patch *v1alpha1.ResourceSlicePatch) {
	p.mu.Lock()
	before, _ := strconv.Atoi(patch.ResourceVersion)
	patch.ResourceVersion = strconv.Itoa(before + 1)
	p.stored[patch.Name] = patch
	p.mu.Unlock()
	p.patches.SetPatch(patch)
	if p.controller != nil {
		p.controller.Add(patch.Name)
	}
}

// Apply implements applier, as the API server does it.
func (p *patchWorld) Apply(_ context.Context, name string, _ types.UID, conditions []metav1.Condition) (tracker.Rule, error) {
	p.mu.Lock()
	patch := p.stored[name].DeepCopy()
	patch.Status.Conditions = conditions
	for _, c := range conditions {
		p.said = append(p.said, c.Type+" "+string(c.Status)+" "+c.Reason+": "+c.Message)
	}
	p.mu.Unlock()
	p.keep(patch)
	rule, _ := ruleOfPatch(patch)
	return rule, nil
}

// last returns what was said last of a condition.
func (p *patchWorld) last(kind string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.said {
		if after, ok := strings.CutPrefix(p.said[len(p.said)-1-i], kind+" "); ok {
			return after
		}
	}
	return ""
}

// writeOut has a rule of the patch for one device; nobody forgets to tell.
func (p *patchWorld) writeOut(name, deviceName string, effect resourcev1.DeviceTaintEffect, patch types.UID) {
	rule := &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name + "-uid"), ResourceVersion: "1", Labels: map[string]string{v1alpha1.LabelPatch: string(patch)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceSlicePatch", Name: "gpu-broken", UID: patch, Controller: new(true),
			}},
		},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new("gpu.example.com"), Pool: new("node"), Device: &deviceName},
			Taint:          resourcev1.DeviceTaint{Key: "k", Effect: effect, TimeAdded: new(metav1.Now())},
		},
	}
	p.tracker.SetRule(tracker.RuleOf(rule), time.Now())
	p.ruleChanged(name)
}

func (p *patchWorld) erase(name string) {
	p.tracker.DeleteRule(name, types.UID(name+"-uid"))
	p.ruleChanged(name)
}

func (p *patchWorld) ruleChanged(name string) {
	patches := p.patches.RuleChanged(name)
	if p.controller != nil {
		p.controller.Add(patches...)
	}
	synctest.Wait()
}

// podOnBoth puts a pod on devices a and b.
func (p *patchWorld) podOnBoth(name string) tracker.Key {
	key := tracker.Key{Namespace: "team", Name: name, UID: types.UID("uid-" + name)}
	claim := tracker.Claim{
		ClaimName: tracker.ClaimName{Namespace: "team", Name: name}, UID: "claim", Allocated: true,
		Consumers: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: key.UID}},
	}
	for _, d := range []string{"a", "b"} {
		claim.Devices = append(claim.Devices, tracker.AllocatedDevice{ID: device.ID{Driver: "gpu.example.com", Pool: "node", Name: d}})
	}
	p.tracker.SetClaim(claim)
	p.tracker.SetPod(podWithClaim(key))
	return key
}

func TestPatchStatus(t *testing.T) {
	t.Parallel()
	const progress = resourcev1.DeviceTaintConditionEvictionInProgress

	t.Run("the pods of all rules of a patch are counted once, and what was evicted stays when rules go", func(t *testing.T) {
		t.Parallel()
		inPatchWorld(t, resourcev1.DeviceTaintEffectNoExecute, func(w *patchWorld) {
			w.writeOut("r-a", "a", resourcev1.DeviceTaintEffectNoExecute, brokenUID)
			w.writeOut("r-b", "b", resourcev1.DeviceTaintEffectNoExecute, brokenUID)
			keys := []tracker.Key{w.podOnBoth("p"), w.podOnBoth("q")}
			w.start()
			require.Equal(t, "True PodsPendingEviction: 2 pods need to be evicted in 1 namespace.", w.last(progress))
			for _, key := range keys {
				w.tracker.SetTerminating(key)
			}
			w.world.mu.Lock()
			w.evicted[brokenUID] = 2
			w.world.mu.Unlock()
			w.controller.Add("gpu-broken")
			w.pass(time.Minute)
			require.Equal(t, "False Completed: 2 pods evicted so far.", w.last(progress))
			w.erase("r-a")
			w.erase("r-b")
			w.pass(2 * time.Minute)
			require.Equal(t, "False Completed: 2 pods evicted so far.", w.last(progress))
			w.restart()
			w.pass(2 * time.Minute)
			require.Equal(t, "False Completed: 2 pods evicted so far.", w.last(progress), "a new leader reads it back")
			require.Empty(t, w.forgot)
		})
	})

	t.Run("the rules of a former patch of that name are not this one's", func(t *testing.T) {
		t.Parallel()
		inPatchWorld(t, resourcev1.DeviceTaintEffectNoExecute, func(w *patchWorld) {
			w.writeOut("r-a", "a", resourcev1.DeviceTaintEffectNoExecute, "former")
			w.podOnBoth("p")
			w.start()
			w.pass(time.Minute)
			require.Equal(t, "False NotStarted: ", w.last(progress))
		})
	})

	t.Run("while rules are still to be written the eviction is not over", func(t *testing.T) {
		t.Parallel()
		inPatchWorld(t, resourcev1.DeviceTaintEffectNoExecute, func(w *patchWorld) {
			var mu sync.Mutex
			written := false
			w.options.Written = func(patch *tracker.Rule) bool {
				mu.Lock()
				defer mu.Unlock()
				return written && patch.UID == brokenUID
			}
			w.start()
			w.pass(10 * time.Minute)
			require.Equal(t, "True Settling: "+settlingMessage, w.last(progress))
			mu.Lock()
			written = true
			mu.Unlock()
			w.controller.Add("gpu-broken")
			w.pass(settleTime - time.Second)
			require.Equal(t, "True Settling: "+settlingMessage, w.last(progress))
			w.pass(time.Minute)
			require.Equal(t, "False NotStarted: ", w.last(progress))
			mu.Lock()
			written = false
			mu.Unlock()
			w.restart()
			w.pass(time.Minute)
			require.Equal(t, "False NotStarted: ", w.last(progress), "a new leader that has not looked yet does not take it back")
		})
	})

	t.Run("while rules are still to be written it is not said what None would do", func(t *testing.T) {
		t.Parallel()
		inPatchWorld(t, resourcev1.DeviceTaintEffectNone, func(w *patchWorld) {
			var written atomic.Bool
			w.options.Written = func(*tracker.Rule) bool { return written.Load() }
			w.start()
			w.pass(time.Minute)
			require.Empty(t, w.last(progress))
			w.writeOut("r-a", "a", resourcev1.DeviceTaintEffectNone, brokenUID)
			w.podOnBoth("p")
			written.Store(true)
			w.pass(2 * time.Second)
			require.Contains(t, w.last(progress), "False NoEffect: 0 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace")
		})
	})

	t.Run("a patch with the effect None has a preview, which is kept up to date", func(t *testing.T) {
		t.Parallel()
		inPatchWorld(t, resourcev1.DeviceTaintEffectNone, func(w *patchWorld) {
			w.writeOut("r-a", "a", resourcev1.DeviceTaintEffectNone, brokenUID)
			w.writeOut("r-b", "b", resourcev1.DeviceTaintEffectNone, brokenUID)
			w.podOnBoth("p")
			w.start()
			require.Contains(t, w.last(progress), "False NoEffect: 0 published devices selected. 2 allocated devices selected. 1 pod would be evicted in 1 namespace")
			w.podOnBoth("q")
			w.pass(3 * time.Minute)
			require.Contains(t, w.last(progress), "2 allocated devices selected. 1 pod would")
			require.Contains(t, w.last(ConditionEvictionPreview), "True PodsWouldBeEvicted: 0 published devices selected. 4 allocated devices selected. 2 pods would be evicted")
		})
	})

	t.Run("a patch that loses its taints says so, and one that never had any says nothing", func(t *testing.T) {
		t.Parallel()
		inPatchWorld(t, resourcev1.DeviceTaintEffectNoExecute, func(w *patchWorld) {
			w.start()
			w.edit(func(patch *v1alpha1.ResourceSlicePatch) { patch.Spec.Devices.Taints = nil })
			require.Equal(t, "False OtherEffect: "+otherMessage, w.last(progress))
			w.patches.SetPatch(&v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: "plain", UID: "1"}})
			require.Equal(t, []string{"gpu-broken"}, w.patches.Rules())
		})
	})

	t.Run("a patch that is deleted is forgotten with what was counted, and logs speak of patches", func(t *testing.T) {
		t.Parallel()
		inPatchWorld(t, resourcev1.DeviceTaintEffectNoExecute, func(w *patchWorld) {
			w.start()
			w.patches.DeletePatch("gpu-broken", "another")
			require.Equal(t, []string{"gpu-broken"}, w.patches.Rules())
			w.patches.DeletePatch("gpu-broken", brokenUID)
			w.controller.Add("gpu-broken")
			synctest.Wait()
			require.Equal(t, []types.UID{brokenUID}, w.forgot)
			lines := strings.Join(w.lines, "\n")
			require.Contains(t, lines, "patch status started")
			require.NotContains(t, lines, "rule")
		})
	})
}

func TestPatchesHearOfRules(t *testing.T) {
	t.Parallel()
	inPatchWorld(t, resourcev1.DeviceTaintEffectNoExecute, func(w *patchWorld) {
		require.Empty(t, w.patches.RuleChanged("never-seen"))
		w.writeOut("r-a", "a", resourcev1.DeviceTaintEffectNoExecute, brokenUID)
		w.writeOut("r-b", "b", resourcev1.DeviceTaintEffectNoExecute, "former")
		w.writeOut("r-c", "c", resourcev1.DeviceTaintEffectNoExecute, "former")
		require.Equal(t, []string{"gpu-broken"}, w.patches.RuleChanged("r-a"))
		w.tracker.DeleteRule("r-a", "r-a-uid")
		require.Equal(t, []string{"gpu-broken"}, w.patches.RuleChanged("r-a"), "one that is gone concerns its patch")
		require.Empty(t, w.patches.RuleChanged("r-a"))
		w.erase("r-b")
		require.Empty(t, w.forgot, "it has another rule")
		w.erase("r-c")
		require.Equal(t, []types.UID{"former"}, w.forgot, "nobody else would let go of it")
	})
}

func TestPatchesTakeTheLaterVersion(t *testing.T) {
	t.Parallel()
	at := func(version string, uid types.UID, generation int64) *v1alpha1.ResourceSlicePatch {
		patch := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: uid, ResourceVersion: version, Generation: generation}}
		patch.Spec.Devices.Taints = []v1alpha1.PatchedTaint{{Key: "k", Effect: resourcev1.DeviceTaintEffectNone}}
		return patch
	}
	p := NewPatches(tracker.New(), func(types.UID) {})
	generation := func() int64 {
		rule, ok := p.Rule("p")
		require.True(t, ok)
		return rule.Generation
	}
	refresh := func(patch *v1alpha1.ResourceSlicePatch) {
		rule, _ := ruleOfPatch(patch)
		require.Empty(t, p.RefreshRule(rule, "", time.Time{}))
	}
	p.SetPatch(at("5", "u", 5))
	p.SetPatch(at("4", "u", 4))
	refresh(at("3", "u", 3))
	refresh(at("9", "other", 9))
	require.EqualValues(t, 5, generation())
	refresh(at("6", "u", 6))
	require.EqualValues(t, 6, generation())
	p.SetPatch(at("2", "anew", 2))
	require.EqualValues(t, 2, generation(), "one that was created anew is another patch")
	_, ok := p.Impact("p")
	require.False(t, ok, "the devices are not known")
	_, ok = p.Impact("unknown")
	require.False(t, ok)
}

func TestEffectOfPatch(t *testing.T) {
	t.Parallel()
	const none, noSchedule, noExecute = resourcev1.DeviceTaintEffectNone, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute
	for _, test := range []struct {
		effects []resourcev1.DeviceTaintEffect
		want    resourcev1.DeviceTaintEffect
	}{
		{[]resourcev1.DeviceTaintEffect{noSchedule, none, noExecute}, noExecute},
		{[]resourcev1.DeviceTaintEffect{noSchedule, none}, none},
		{[]resourcev1.DeviceTaintEffect{noSchedule}, noSchedule},
		{nil, noSchedule},
	} {
		var taints []v1alpha1.PatchedTaint
		for _, effect := range test.effects {
			taints = append(taints, v1alpha1.PatchedTaint{Effect: effect})
		}
		require.Equal(t, test.want, effectOf(taints), test.effects)
	}
}

func TestRulesAndPatchesShareARegistry(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	NewMetrics(registry)
	NewPatchMetrics(registry)
}

func TestApplyToPatch(t *testing.T) {
	t.Parallel()
	conditions := []metav1.Condition{{
		Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: isFalse, Reason: ReasonNotStarted, ObservedGeneration: 3,
		LastTransitionTime: metav1.NewTime(time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)),
	}}
	t.Run("conditions are applied to the status of the patch with the UID", func(t *testing.T) {
		t.Parallel()
		client, requests := serve(t, http.StatusOK, map[string]any{
			"apiVersion": "tollgate.dev/v1alpha1", "kind": "ResourceSlicePatch",
			"metadata": map[string]any{"name": "gpu-broken", "uid": "1234", "resourceVersion": "77", "generation": 4},
			"spec":     map[string]any{"devices": map[string]any{"taints": []any{map[string]any{"key": "k", "effect": "None"}}}},
		})
		rule, err := NewPatchApplier(client).Apply(t.Context(), "gpu-broken", "1234", conditions)
		require.NoError(t, err)
		request := <-requests
		require.Equal(t, http.MethodPatch, request.method)
		require.Equal(t, "/apis/tollgate.dev/v1alpha1/resourceslicepatches/gpu-broken/status?fieldManager=tollgate&force=true", request.uri)
		require.JSONEq(t, `{
			"apiVersion": "tollgate.dev/v1alpha1", "kind": "ResourceSlicePatch",
			"metadata": {"name": "gpu-broken", "uid": "1234"},
			"status": {"conditions": [
				{"type": "EvictionInProgress", "status": "False", "reason": "NotStarted", "message": "", "observedGeneration": 3, "lastTransitionTime": "2026-08-01T12:00:00Z"}
			]}
		}`, request.body)
		require.Equal(t, "77", rule.ResourceVersion)
		require.EqualValues(t, 4, rule.Generation)
		require.Equal(t, resourcev1.DeviceTaintEffectNone, rule.Taint.Effect)
	})
	t.Run("a refusal keeps its reason", func(t *testing.T) {
		t.Parallel()
		client, _ := serve(t, http.StatusNotFound, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		})
		_, err := NewPatchApplier(client).Apply(t.Context(), "gpu-broken", "1234", conditions)
		require.ErrorContains(t, err, "apply status of patch gpu-broken")
		require.Equal(t, outcomeGone, outcomeOf(err))
	})
	t.Run("an answer that is no patch is an error", func(t *testing.T) {
		t.Parallel()
		client, _ := serve(t, http.StatusOK, map[string]any{
			"apiVersion": "tollgate.dev/v1alpha1", "kind": "ResourceSlicePatch", "metadata": map[string]any{"name": "gpu-broken"}, "spec": "?",
		})
		_, err := NewPatchApplier(client).Apply(t.Context(), "gpu-broken", "1234", conditions)
		require.ErrorContains(t, err, "read ResourceSlicePatch gpu-broken")
	})
}
