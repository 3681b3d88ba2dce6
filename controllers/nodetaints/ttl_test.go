package nodetaints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
)

// ttlWorld is an API server with nodes and rules, and a cache that is up to date.
type ttlWorld struct {
	controller *TTLController
	metrics    *TTLMetrics

	mu       sync.Mutex
	nodes    map[string]*corev1.Node
	rules    map[string]tracker.Rule
	patches  map[string]*v1alpha1.ResourceSlicePatch
	current  *policyset.Set
	handlers []toolscache.ResourceEventHandler
	changed  chan struct{}
	err      error
	events   []string
	// paired are the names of the paired rules.
	paired map[string]bool
}

func (w *ttlWorld) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch into := obj.(type) {
	case *corev1.Node:
		if node, ok := w.nodes[key.Name]; ok {
			node.DeepCopyInto(into)
			return nil
		}
	case *v1alpha1.ResourceSlicePatch:
		if patch, ok := w.patches[key.Name]; ok {
			patch.DeepCopyInto(into)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (w *ttlWorld) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch into := list.(type) {
	case *corev1.NodeList:
		for _, node := range w.nodes {
			into.Items = append(into.Items, *node)
		}
	case *v1alpha1.ResourceSlicePatchList:
		for _, patch := range w.patches {
			into.Items = append(into.Items, *patch)
		}
	}
	return nil
}

func (w *ttlWorld) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return &ttlFakeInformer{world: w}, nil
}

type ttlFakeInformer struct {
	cache.Informer

	world *ttlWorld
}

func (f *ttlFakeInformer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	f.world.handlers = append(f.world.handlers, handler)
	for _, node := range f.world.nodes {
		handler.OnAdd(node, true)
	}
	return nil, nil //nolint:nilnil // It is only handed back.
}

func (f *ttlFakeInformer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	return nil
}

func (w *ttlWorld) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Node, error) {
	w.mu.Lock()
	node, ok := w.nodes[name]
	err := w.err
	w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name)
	}
	before, err := json.Marshal(node)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, err
	}
	after, err := patch.Apply(before)
	if err != nil {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), name, nil)
	}
	patched := &corev1.Node{}
	if err := json.Unmarshal(after, patched); err != nil {
		return nil, err
	}
	w.set(patched)
	return patched, nil
}

// set writes a node and sends its event.
func (w *ttlWorld) set(node *corev1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[node.Name] = node
	for _, handler := range w.handlers {
		handler.OnUpdate(node, node)
	}
}

func (w *ttlWorld) Rules() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := make([]string, 0, len(w.rules))
	for name := range w.rules {
		names = append(names, name)
	}
	return names
}

func (w *ttlWorld) Rule(name string) (tracker.Rule, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rule, ok := w.rules[name]
	return rule, ok
}

func (w *ttlWorld) Paired(_ context.Context, _ *policyset.Set, rule *tracker.Rule) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paired[rule.Name], w.err
}

func (w *ttlWorld) DeleteRule(_ context.Context, rule *tracker.Rule) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if w.rules[rule.Name].UID != rule.UID || w.rules[rule.Name].ResourceVersion != rule.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "devicetaintrules"}, rule.Name, errors.New("changed"))
	}
	delete(w.rules, rule.Name)
	return nil
}

func (w *ttlWorld) Current() *policyset.Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

func (w *ttlWorld) Subscribe() (<-chan struct{}, func()) { return w.changed, func() {} }

// Eventf implements recorder.
func (w *ttlWorld) Eventf(object runtime.Object, _, reason, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	reference := object.(*corev1.ObjectReference)
	w.events = append(w.events, reference.Kind+"/"+reference.Name+" "+reason+": "+fmt.Sprintf(format, args...))
}

func (w *ttlWorld) reported() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events
}

func (w *ttlWorld) enforce(policies ...v1alpha1.TaintPolicy) {
	w.mu.Lock()
	w.current = w.current.WithTaints(policies)
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// taints returns the keys of the taints of a node.
func (w *ttlWorld) taints(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := []string{}
	for _, t := range w.nodes[name].Spec.Taints {
		keys = append(keys, t.Key)
	}
	return keys
}

// runTTL runs test while a controller runs.
func runTTL(t *testing.T, test func(t *testing.T, w *ttlWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &ttlWorld{
			nodes: map[string]*corev1.Node{}, rules: map[string]tracker.Rule{}, patches: map[string]*v1alpha1.ResourceSlicePatch{}, changed: make(chan struct{}, 1),
			metrics: NewTTLMetrics(prometheus.NewPedanticRegistry()),
		}
		w.controller = NewTTL(TTLOptions{
			Cache: w, Nodes: w, Patches: (*slicePatches)(w), Rules: w, Deleter: w, Policies: w, Clock: clock.RealClock{}, Local: clock.RealClock{},
			Leads: func() bool { return true }, Timeout: time.Second, Recorder: w, Metrics: w.metrics,
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.controller.Start(ctx) }()
		rest(time.Second)
		test(t, w)
		stop()
		require.NoError(t, <-done)
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
		require.Equal(t, "Node/n TaintExpired: Removed, because the taint maintenance:NoSchedule is older than the ttl 24h0m0s of TaintPolicy/day", w.reported()[0])
		require.InDelta(t, 2, testutil.ToFloat64(w.metrics.expired.WithLabelValues(sourceNode)), 0)
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
		w.rules["r"] = rule("r", "maintenance", time.Hour)
		rest(time.Hour)
		require.Len(t, w.taints("n"), 1)
		w.enforce(limited("a", "maintenance", time.Minute))
		rest(time.Second)
		require.Empty(t, w.taints("n"))
		require.Empty(t, w.Rules())
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
		w.rules["r"], w.rules["other"] = rule("r", "degraded", 30*time.Minute), rule("other", "other", 24*time.Hour)
		w.mu.Unlock()
		w.controller.RuleChanged("r")
		w.controller.RuleChanged("other")
		rest(29 * time.Minute)
		require.Len(t, w.Rules(), 2)
		rest(2 * time.Minute)
		require.Equal(t, []string{"other"}, w.Rules())
		require.Equal(t, "DeviceTaintRule/r TaintExpired: Removed, because the taint degraded:NoExecute is older than the ttl 1h0m0s of TaintPolicy/hour", w.reported()[0])
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
		w.rules["r-noschedule"], w.paired = rule("r-noschedule", "degraded", 2*time.Hour), map[string]bool{"r-noschedule": true}
		w.mu.Unlock()
		w.controller.RuleChanged("r-noschedule")
		rest(30 * time.Minute)
		require.Len(t, w.Rules(), 1)
		w.mu.Lock()
		w.paired = nil
		w.mu.Unlock()
		rest(time.Hour)
		require.Empty(t, w.Rules())
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
		w.rules["gpu-broken-1"] = written
		w.mu.Unlock()
		w.controller.RuleChanged("gpu-broken-1")
		rest(3 * time.Hour)
		require.Len(t, w.Rules(), 1)
	})
}

func TestWhatWasChangedMeanwhileStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := ttlNode("n", ttlTaint("maintenance", corev1.TaintEffectNoSchedule, time.Hour))
		w := &ttlWorld{nodes: map[string]*corev1.Node{}, current: policyset.None().WithTaints([]v1alpha1.TaintPolicy{limited("a", "maintenance", time.Minute)})}
		expired, _ := expiredOnNode(w.current.Taints, seen, time.Now())
		require.Len(t, expired, 1)
		body, err := removeFromNode(seen, expired)
		require.NoError(t, err)
		for sentence, now := range map[string]*corev1.Node{
			"the taint was set again": ttlNode("n", ttlTaint("maintenance", corev1.TaintEffectNoSchedule, 0)),
			"another taint is there":  ttlNode("n", ttlTaint("other", corev1.TaintEffectNoSchedule, time.Hour), seen.Spec.Taints[0]),
			"it was removed":          ttlNode("n"),
			"it is another node":      {ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "another"}, Spec: seen.Spec},
		} {
			w.nodes["n"] = now
			before := len(now.Spec.Taints)
			_, err = w.Patch(t.Context(), "n", types.JSONPatchType, body, metav1.PatchOptions{})
			require.Error(t, err, sentence)
			require.Len(t, w.nodes["n"].Spec.Taints, before, sentence)
		}
		w.nodes["n"] = seen
		_, err = w.Patch(t.Context(), "n", types.JSONPatchType, body, metav1.PatchOptions{})
		require.NoError(t, err)
		require.Empty(t, w.taints("n"))
	})
}

func TestWhatFailsIsTriedAgain(t *testing.T) {
	runTTL(t, func(t *testing.T, w *ttlWorld) {
		t.Helper()
		w.err = errors.New("away")
		w.enforce(limited("a", "maintenance", time.Minute))
		w.set(ttlNode("n", ttlTaint("maintenance", corev1.TaintEffectNoSchedule, time.Hour)))
		w.mu.Lock()
		w.rules["r"] = rule("r", "maintenance", time.Hour)
		w.mu.Unlock()
		w.controller.RuleChanged("r")
		rest(time.Minute)
		require.Len(t, w.taints("n"), 1)
		w.mu.Lock()
		w.err = nil
		w.mu.Unlock()
		rest(time.Minute)
		require.Empty(t, w.taints("n"))
		require.Empty(t, w.Rules())
	})
}

func TestWhatIsLookedAtHasANameInLogs(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Node/a", key{sourceNode, "a"}.describe())
	require.Equal(t, "DeviceTaintRule/a", key{sourceRule, "a"}.describe())
	require.Equal(t, "ResourceSlicePatch/a", key{sourcePatch, "a"}.describe())
}

// slicePatches is the ResourceSlicePatches of a world.
type slicePatches ttlWorld

func (p *slicePatches) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*unstructured.Unstructured, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	before, err := json.Marshal(p.patches[name])
	if err != nil {
		return nil, err
	}
	operations, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, err
	}
	after, err := operations.Apply(before)
	if err != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, name, nil)
	}
	patch := &v1alpha1.ResourceSlicePatch{}
	if err := json.Unmarshal(after, patch); err != nil {
		return nil, err
	}
	patch.ResourceVersion += "0"
	(*ttlWorld)(p).store(patch)
	return nil, nil
}

func (p *slicePatches) Delete(_ context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	stored := p.patches[name]
	if p.err != nil {
		return p.err
	}
	if *options.Preconditions.UID != stored.UID || *options.Preconditions.ResourceVersion != stored.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{}, name, errors.New("changed"))
	}
	delete(p.patches, name)
	return nil
}

// store writes a patch and sends its event. The caller holds the lock.
func (w *ttlWorld) store(patch *v1alpha1.ResourceSlicePatch) {
	w.patches[patch.Name] = patch
	for _, handler := range w.handlers {
		handler.OnUpdate(patch, patch)
	}
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
			"ResourceSlicePatch/only TaintExpired: Removed, because the taint degraded:NoExecute is older than the ttl 1h0m0s of TaintPolicy/hour",
			"ResourceSlicePatch/by-its-status TaintExpired: Removed, because the taint degraded:NoExecute is older than the ttl 1h0m0s of TaintPolicy/hour",
			"ResourceSlicePatch/beside-another TaintExpired: Removed, because the taint degraded:NoExecute is older than the ttl 1h0m0s of TaintPolicy/hour",
			"ResourceSlicePatch/with-attributes TaintExpired: Removed, because the taint degraded:NoExecute is older than the ttl 1h0m0s of TaintPolicy/hour",
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
