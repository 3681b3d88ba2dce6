package nodetaints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/tracker"
)

var errAway = errors.New("away")

// world is an API server with nodes, rules, ResourceSlicePatches and policies, and a cache
// of them.
type world struct {
	mu sync.Mutex
	// nodes are the stored nodes, and cached those of the cache, which follows unless
	// staleCache is true.
	nodes, cached map[string]*corev1.Node
	staleCache    bool
	patches       map[string]*v1alpha1.ResourceSlicePatch
	rules         *tracker.Tracker
	// paired are the names of the paired rules.
	paired   map[string]bool
	policies []v1alpha1.TaintPolicy
	current  *policyset.Set
	changed  chan struct{}
	handlers map[string][]toolscache.ResourceEventHandler // by the type of objects
	pods     []corev1.Pod
	podsErr  error
	leads    bool
	since    time.Time
	// err is the error of reads and writes at the API server, and patchErr that of patches
	// of nodes.
	err, patchErr error
	// interleave runs once between a read and a write.
	interleave func()
	// calls are the requests for nodes, events the recorded events, and reads counts how
	// often a node was read from the cache.
	calls, events []string
	reads         int
	// checked are the writes that limits checked, and room is how many more of them are
	// within the limits; limitErr is the error of the check.
	checked  []preview.NodeWrite
	room     int
	limitErr error
}

func newWorld() *world {
	return &world{
		nodes: map[string]*corev1.Node{}, cached: map[string]*corev1.Node{}, patches: map[string]*v1alpha1.ResourceSlicePatch{},
		rules: tracker.New(), handlers: map[string][]toolscache.ResourceEventHandler{},
		changed: make(chan struct{}, 1), leads: true, since: time.Now(),
	}
}

// base returns what a controller in this world gets.
func (w *world) base() controller.Base {
	return controller.Base{
		Cache: w, Policies: w, Recorder: w, Clock: clock.RealClock{}, Local: clock.RealClock{}, Timeout: time.Second,
		Leads: func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.leads
		},
	}
}

// lead runs a controller while during runs.
func lead(t *testing.T, start func(context.Context) error, during func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- start(ctx) }()
	rest(time.Second)
	during()
	stop()
	require.NoError(t, <-done)
}

// rest lets time pass and waits until all goroutines block.
func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// locked calls change with the lock.
func (w *world) locked(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func notFound(name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, name)
}

func (w *world) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch obj := obj.(type) {
	case *corev1.Node:
		w.reads++
		if node, ok := w.cached[key.Name]; ok {
			node.DeepCopyInto(obj)
			return nil
		}
	case *v1alpha1.ResourceSlicePatch:
		if patch, ok := w.patches[key.Name]; ok {
			patch.DeepCopyInto(obj)
			return nil
		}
	case *v1alpha1.TaintPolicy:
		for i := range w.policies {
			if w.policies[i].Name == key.Name {
				w.policies[i].DeepCopyInto(obj)
				return nil
			}
		}
	}
	return notFound(key.Name)
}

func (w *world) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch list := list.(type) {
	case *corev1.NodeList:
		for _, node := range w.cached {
			list.Items = append(list.Items, *node)
		}
	case *v1alpha1.ResourceSlicePatchList:
		for _, patch := range w.patches {
			list.Items = append(list.Items, *patch)
		}
	}
	return nil
}

func (w *world) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return &fakeInformer{world: w, kind: fmt.Sprintf("%T", obj)}, nil
}

type fakeInformer struct {
	cache.Informer

	world *world
	kind  string
}

func (f *fakeInformer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	f.world.handlers[f.kind] = append(f.world.handlers[f.kind], handler)
	if f.kind == "*v1.Node" {
		for _, node := range f.world.cached {
			handler.OnAdd(node, true)
		}
	}
	return nil, nil //nolint:nilnil // It is only handed back.
}

func (f *fakeInformer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	delete(f.world.handlers, f.kind)
	return nil
}

// set writes a node and sends its event.
func (w *world) set(node *corev1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	version := 0
	if old, ok := w.nodes[node.Name]; ok {
		version, _ = strconv.Atoi(old.ResourceVersion)
	}
	node = node.DeepCopy()
	node.ResourceVersion = strconv.Itoa(version + 1)
	w.nodes[node.Name] = node
	if w.staleCache {
		return
	}
	old := w.cached[node.Name]
	w.cached[node.Name] = node
	for _, handler := range w.handlers["*v1.Node"] {
		if old == nil {
			handler.OnAdd(node, false)
		} else {
			handler.OnUpdate(old, node)
		}
	}
}

func (w *world) remove(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, handler := range w.handlers["*v1.Node"] {
		handler.OnDelete(w.nodes[name])
	}
	delete(w.nodes, name)
	delete(w.cached, name)
}

// store writes a ResourceSlicePatch and sends its event. The caller holds the lock.
func (w *world) store(patch *v1alpha1.ResourceSlicePatch) {
	w.patches[patch.Name] = patch
	for _, handler := range w.handlers["*v1alpha1.ResourceSlicePatch"] {
		handler.OnUpdate(patch, patch)
	}
}

// apply applies a JSON patch to an object as the API server does.
func apply[T any](object *T, data []byte) (*T, error) {
	before, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	operations, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, err
	}
	after, err := operations.Apply(before)
	if err != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "it", nil)
	}
	patched := new(T)
	return patched, json.Unmarshal(after, patched)
}

// nodeAPI is the nodes of the API server.
type nodeAPI struct {
	typedcorev1.NodeInterface

	world *world
}

func (a nodeAPI) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Node, error) {
	a.world.mu.Lock()
	defer a.world.mu.Unlock()
	a.world.calls = append(a.world.calls, "get "+name)
	if node, ok := a.world.nodes[name]; ok || a.world.err != nil {
		return node, a.world.err
	}
	return nil, notFound(name)
}

func (a nodeAPI) Patch(_ context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Node, error) {
	a.world.mu.Lock()
	interleave := a.world.interleave
	a.world.interleave = nil
	a.world.mu.Unlock()
	if interleave != nil {
		interleave()
	}
	a.world.mu.Lock()
	a.world.calls = append(a.world.calls, "patch "+name)
	node, ok := a.world.nodes[name]
	err := errors.Join(a.world.err, a.world.patchErr)
	a.world.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, notFound(name)
	case kind != types.JSONPatchType:
		return nil, fmt.Errorf("patch of type %s", kind)
	}
	patched, err := apply(node, data)
	if err != nil {
		return nil, err
	}
	a.world.set(patched)
	return patched, nil
}

// patchAPI is the ResourceSlicePatches of the API server.
type patchAPI struct {
	dynamic.ResourceInterface

	world *world
}

func (a patchAPI) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*unstructured.Unstructured, error) {
	a.world.mu.Lock()
	defer a.world.mu.Unlock()
	if a.world.err != nil {
		return nil, a.world.err
	}
	patched, err := apply(a.world.patches[name], data)
	if err != nil {
		return nil, err
	}
	patched.ResourceVersion += "0"
	a.world.store(patched)
	return nil, nil
}

func (a patchAPI) Delete(_ context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	a.world.mu.Lock()
	defer a.world.mu.Unlock()
	stored := a.world.patches[name]
	if a.world.err != nil {
		return a.world.err
	}
	if *options.Preconditions.UID != stored.UID || *options.Preconditions.ResourceVersion != stored.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{}, name, errors.New("changed"))
	}
	delete(a.world.patches, name)
	return nil
}

func (w *world) Paired(_ context.Context, _ *policyset.Set, rule *tracker.Rule) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paired[rule.Name], w.err
}

func (w *world) DeleteRule(_ context.Context, rule *tracker.Rule) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if stored, _ := w.rules.Rule(rule.Name); stored.UID != rule.UID || stored.ResourceVersion != rule.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "devicetaintrules"}, rule.Name, errors.New("changed"))
	}
	w.rules.DeleteRule(rule.Name, rule.UID)
	return nil
}

// listPods lists the pods of a node.
func (w *world) listPods(_ context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := &corev1.PodList{}
	for _, pod := range w.pods {
		if opts.FieldSelector == "spec.nodeName="+pod.Spec.NodeName {
			list.Items = append(list.Items, pod)
		}
	}
	return list, w.podsErr
}

// check checks limits.
func (w *world) check(_ context.Context, _ *taint.Set, write preview.NodeWrite) (preview.Verdict, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.limitErr != nil {
		return preview.Verdict{}, w.limitErr
	}
	w.checked = append(w.checked, write)
	w.room--
	if w.room < 0 {
		return preview.Verdict{Findings: []policy.Finding{
			{Reason: policy.TooManyAffected, Policy: "TaintPolicy/limits", Field: "spec.taints[0]", Problem: "hits 3 pods, of at most 2", Remedy: "to approve it"},
			{Reason: policy.TooManyAffected, Actions: []v1alpha1.ValidationAction{v1alpha1.Warn}, Problem: "only warns"},
		}}, nil
	}
	return preview.Verdict{Findings: []policy.Finding{{Reason: policy.TooManyAffected, Actions: []v1alpha1.ValidationAction{v1alpha1.Warn}}}}, nil
}

func (w *world) Current() *policyset.Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

func (w *world) Subscribe() (<-chan struct{}, func()) { return w.changed, func() {} }

// Eventf implements controller.Recorder.
func (w *world) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	reference := object.(*corev1.ObjectReference)
	w.events = append(w.events, reference.Kind+"/"+reference.Name+" "+eventType+" "+reason+": "+fmt.Sprintf(format, args...))
}

// enforce brings policies into force.
func (w *world) enforce(policies ...v1alpha1.TaintPolicy) {
	w.policies = policies
	w.put(w.current.WithTaints(policies))
}

// put puts a set of policies in force.
func (w *world) put(policies *policyset.Set) {
	w.mu.Lock()
	w.current = policies
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// taintsOf returns the taints of a node as text, in their order.
func (w *world) taintsOf(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return taintTexts(w.nodes[name])
}

func taintTexts(node *corev1.Node) []string {
	list := make([]string, len(node.Spec.Taints))
	for i := range node.Spec.Taints {
		list[i] = node.Spec.Taints[i].ToString()
	}
	return list
}

// taints returns the taints of a node as sorted text.
func (w *world) taints(name string) string {
	return strings.Join(slices.Sorted(slices.Values(w.taintsOf(name))), " ")
}

// count returns the number of patches of nodes.
func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(w.calls), func(call string) bool { return !strings.HasPrefix(call, "patch ") }))
}

// reported returns the events.
func (w *world) reported() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// requests returns the requests for nodes and the events since the last call.
func (w *world) requests() (calls, events []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls, events, w.calls, w.events = w.calls, w.events, nil, nil
	return calls, events
}
