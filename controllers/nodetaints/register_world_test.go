package nodetaints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/taint"
)

var (
	nodesResource = schema.GroupResource{Resource: "nodes"}
	errAway       = errors.New("away")
)

// world is an API server with nodes and one TaintPolicy, and a cache that is always up
// to date.
type world struct {
	controller *RegisterController

	mu       sync.Mutex
	nodes    map[string]*corev1.Node
	policies []v1alpha1.TaintPolicy
	current  *policyset.Set
	pods     []corev1.Pod
	podsErr  error
	patchErr error
	since    time.Time
	leads    bool
	handlers []toolscache.ResourceEventHandler
	changed  chan struct{}
	patches  int
	events   []string
	// reads counts how often a node was read.
	reads int
	// checked are the writes that limits checked, and room is how many more of them are
	// within the limits; limitErr is the error of the check.
	checked  []preview.NodeWrite
	room     int
	limitErr error
}

// Node implements limitChecker.
func (w *world) Node(_ context.Context, _ *taint.Set, write preview.NodeWrite) (preview.Verdict, error) {
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

func (w *world) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch obj := obj.(type) {
	case *corev1.Node:
		w.reads++
		if node, ok := w.nodes[key.Name]; ok {
			node.DeepCopyInto(obj)
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
	return apierrors.NewNotFound(nodesResource, key.Name)
}

func (w *world) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, node := range w.nodes {
		list.(*corev1.NodeList).Items = append(list.(*corev1.NodeList).Items, *node)
	}
	return nil
}

func (w *world) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return &fakeInformer{world: w}, nil
}

type fakeInformer struct {
	cache.Informer

	world *world
}

func (f *fakeInformer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	f.world.handlers = append(f.world.handlers, handler)
	for _, node := range f.world.nodes {
		handler.OnAdd(node, true)
	}
	return nil, nil //nolint:nilnil // It is only handed back.
}

func (f *fakeInformer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	f.world.handlers = nil
	return nil
}

func (w *world) Patch(_ context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Node, error) {
	w.mu.Lock()
	w.patches++
	node, ok := w.nodes[name]
	err := w.patchErr
	w.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, apierrors.NewNotFound(nodesResource, name)
	case kind != types.JSONPatchType:
		return nil, fmt.Errorf("patch of type %s", kind)
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
func (w *world) set(node *corev1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.nodes[node.Name]
	w.nodes[node.Name] = node
	for _, handler := range w.handlers {
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
	for _, handler := range w.handlers {
		handler.OnDelete(w.nodes[name])
	}
	delete(w.nodes, name)
}

// pods lists pods.
type pods struct{ *world }

func (p pods) List(_ context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := &corev1.PodList{}
	for _, pod := range p.pods {
		if opts.FieldSelector == "spec.nodeName="+pod.Spec.NodeName {
			list.Items = append(list.Items, pod)
		}
	}
	return list, p.podsErr
}

func (w *world) Current() *policyset.Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

func (w *world) Subscribe() (<-chan struct{}, func()) { return w.changed, func() {} }

// Eventf implements recorder.
func (w *world) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, object.(*corev1.ObjectReference).Name+" "+eventType+" "+reason+": "+fmt.Sprintf(format, args...))
}

// enforce brings policies into force.
func (w *world) enforce(policies ...v1alpha1.TaintPolicy) {
	w.mu.Lock()
	w.policies = policies
	w.current = w.current.WithTaints(policies)
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// taints returns the taints of a node as sorted text.
func (w *world) taints(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for _, t := range w.nodes[name].Spec.Taints {
		list = append(list, t.ToString())
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.patches
}

func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// added returns the time of the first taint of a node.
func (w *world) added(name string) *metav1.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[name].Spec.Taints[0].TimeAdded
}

// inBubble runs test in a synctest bubble in which no controller runs yet.
func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{nodes: map[string]*corev1.Node{}, changed: make(chan struct{}, 1), leads: true, since: time.Now()}
		w.controller = NewRegister(RegisterOptions{
			Cache: w, Nodes: w, Pods: pods{w}, Policies: w, Clock: clock.RealClock{}, Local: clock.RealClock{},
			Since: func() time.Time { return w.since }, Leads: func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.leads
			},
			Timeout: time.Second, Recorder: w, Limits: w, Self: "tollgate", Metrics: NewRegisterMetrics(prometheus.NewPedanticRegistry()),
		})
		test(t, w)
	})
}

// rest lets time pass and waits until all goroutines block.
func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// lead runs the controller while during runs.
func (w *world) lead(t *testing.T, during func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.controller.Start(ctx) }()
	rest(time.Second)
	during()
	stop()
	require.NoError(t, <-done)
}

func node(name string, labels map[string]string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid of " + name), Labels: labels, CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second)),
		},
		Spec: corev1.NodeSpec{Taints: taints},
	}
}

func tainted(key, value string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: effect}
}

// registering returns a policy that registers dedicated=banana:NoSchedule on nodes of
// pool banana.
func registering(reconcile bool) v1alpha1.TaintPolicy {
	return v1alpha1.TaintPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "banana", UID: "banana", Generation: 1, CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second))},
		Spec: v1alpha1.TaintPolicySpec{
			Taints: []v1alpha1.TaintSelector{{Key: "dedicated"}},
			Register: []v1alpha1.TaintRegistration{{
				NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "banana"}},
				Taints:       []v1alpha1.RegisteredTaint{{Key: "dedicated", Value: "banana", Effect: corev1.TaintEffectNoSchedule}},
				Reconcile:    reconcile,
			}},
		},
	}
}
