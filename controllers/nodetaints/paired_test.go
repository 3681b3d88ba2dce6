package nodetaints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
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
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// pairedWorld is an API server with nodes, and a cache of them.
type pairedWorld struct {
	mu       sync.Mutex
	stored   map[string]*corev1.Node
	cached   map[string]*corev1.Node
	policies *policyset.Set
	leads    bool
	// staleCache disables updates of the cache by writes.
	staleCache bool
	handlers   []toolscache.ResourceEventHandler
	changed    chan struct{}
	calls      []string
	events     []string
	fault      error
	// interleave runs once between a read and a write.
	interleave func()
}

func newWorld() *pairedWorld {
	return &pairedWorld{
		stored: map[string]*corev1.Node{}, cached: map[string]*corev1.Node{}, policies: policiesWithWindow("rack"),
		leads: true, changed: make(chan struct{}, 1),
	}
}

func (w *pairedWorld) controller(window bool) *PairingController {
	return NewPairing(PairingOptions{
		Cache: knownNodes{w}, Nodes: apiServer{w}, Policies: w, Window: window, Local: clock.RealClock{},
		Leads: func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.leads
		},
		Timeout: time.Minute, Recorder: w, Metrics: NewPairingMetrics(prometheus.NewPedanticRegistry()),
	})
}

// put writes a node and sends its event.
func (w *pairedWorld) put(node *corev1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	version := 0
	if old, ok := w.stored[node.Name]; ok {
		version, _ = strconv.Atoi(old.ResourceVersion)
	}
	node = node.DeepCopy()
	node.ResourceVersion = strconv.Itoa(version + 1)
	w.stored[node.Name] = node
	if w.staleCache {
		return
	}
	w.cached[node.Name] = node
	for _, handler := range w.handlers {
		handler.OnUpdate(node, node)
	}
}

func (w *pairedWorld) taintsOf(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return pairedWords(w.stored[name])
}

func (w *pairedWorld) requests() (calls, events []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls, events = w.calls, w.events
	w.calls, w.events = nil, nil
	return calls, events
}

func (w *pairedWorld) Current() *policyset.Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.policies
}

func (w *pairedWorld) Subscribe() (<-chan struct{}, func()) { return w.changed, func() {} }

func (w *pairedWorld) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, eventType+" "+reason+" "+object.(*corev1.ObjectReference).Name+": "+fmt.Sprintf(format, args...))
}

var resource = schema.GroupResource{Resource: "nodes"}

type knownNodes struct{ *pairedWorld }

func (k knownNodes) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	node, ok := k.cached[key.Name]
	if !ok {
		return apierrors.NewNotFound(resource, key.Name)
	}
	node.DeepCopyInto(obj.(*corev1.Node))
	return nil
}

func (k knownNodes) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, node := range k.cached {
		list.(*corev1.NodeList).Items = append(list.(*corev1.NodeList).Items, *node)
	}
	return nil
}

func (k knownNodes) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return &informer{world: k.pairedWorld}, nil
}

type informer struct {
	cache.Informer

	world *pairedWorld
}

func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	i.world.handlers = append(i.world.handlers, handler)
	for _, node := range i.world.cached {
		handler.OnAdd(node, true)
	}
	return nil, nil //nolint:nilnil // It is only handed back.
}

func (i *informer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error { return nil }

type apiServer struct{ *pairedWorld }

func (a apiServer) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Node, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, "get "+name)
	if a.fault != nil {
		return nil, a.fault
	}
	node, ok := a.stored[name]
	if !ok {
		return nil, apierrors.NewNotFound(resource, name)
	}
	return node.DeepCopy(), nil
}

func (a apiServer) Patch(_ context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Node, error) {
	a.mu.Lock()
	interleave := a.interleave
	a.interleave = nil
	a.mu.Unlock()
	if interleave != nil {
		interleave()
	}
	a.mu.Lock()
	a.calls = append(a.calls, "patch "+name)
	node, ok := a.stored[name]
	a.mu.Unlock()
	if !ok {
		return nil, apierrors.NewNotFound(resource, name)
	}
	if kind != types.JSONPatchType {
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
	a.put(patched)
	return patched, nil
}

func pairedNode(t *testing.T, name string, texts ...string) *corev1.Node {
	t.Helper()
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.NodeSpec{Taints: taints(t, texts...)}}
}

func TestANodeHasATwinWhileItNeedsOne(t *testing.T) {
	w := newWorld()
	c := w.controller(true)
	w.put(pairedNode(t, "n", "rack=7:NoExecute"))
	step := func() {
		t.Helper()
		again, err := c.step(t.Context(), "n")
		require.NoError(t, err)
		require.Zero(t, again)
	}
	step()
	require.Equal(t, []string{"rack=7:NoExecute", "rack=7:NoSchedule"}, w.taintsOf("n"))
	calls, events := w.requests()
	require.Equal(t, []string{"get n", "patch n"}, calls)
	require.Equal(t, []string{"Normal NoSchedulePaired n: Added the taint rack=7:NoSchedule, which keeps pods from coming back that are given time before they are evicted"}, events)
	step()
	calls, _ = w.requests()
	require.Empty(t, calls, "nothing is asked while it is right")

	untainted := w.stored["n"].DeepCopy()
	untainted.Spec.Taints = untainted.Spec.Taints[1:]
	w.put(untainted)
	step()
	require.Empty(t, w.taintsOf("n"))
	require.NotContains(t, w.stored["n"].Annotations, v1alpha1.AnnotationTwins)
	_, events = w.requests()
	require.Equal(t, []string{"Normal NoSchedulePairRemoved n: Removed the taint rack=7:NoSchedule: no pod is given time of a taint that it stood beside any more"}, events)
	require.InDelta(t, 1, testutil.ToFloat64(c.options.Metrics.writes.WithLabelValues(operationAdd)), 0)
	require.InDelta(t, 1, testutil.ToFloat64(c.options.Metrics.writes.WithLabelValues(operationRemove)), 0)
}

func TestWhatIsReadDecides(t *testing.T) {
	t.Run("what is known lags behind", func(t *testing.T) {
		w := newWorld()
		c := w.controller(true)
		w.put(pairedNode(t, "n", "rack:NoExecute"))
		w.staleCache = true
		w.put(pairedNode(t, "n"))
		_, err := c.step(t.Context(), "n")
		require.NoError(t, err)
		calls, _ := w.requests()
		require.Equal(t, []string{"get n"}, calls)
	})
	t.Run("what others write between the read and the write stays", func(t *testing.T) {
		w := newWorld()
		c := w.controller(true)
		w.put(pairedNode(t, "n", "rack:NoExecute"))
		w.interleave = func() { w.put(pairedNode(t, "n", "other:NoSchedule")) }
		_, err := c.step(t.Context(), "n")
		require.Error(t, err)
		require.Equal(t, []string{"other:NoSchedule"}, w.taintsOf("n"))
		_, events := w.requests()
		require.Empty(t, events)
	})
	t.Run("a node that was replaced is another one", func(t *testing.T) {
		w := newWorld()
		c := w.controller(true)
		w.put(pairedNode(t, "n", "rack:NoExecute"))
		w.interleave = func() {
			w.mu.Lock()
			delete(w.stored, "n")
			w.mu.Unlock()
			another := pairedNode(t, "n")
			another.UID = "another"
			w.put(another)
		}
		_, err := c.step(t.Context(), "n")
		require.Error(t, err)
		require.Empty(t, w.taintsOf("n"))
	})
	t.Run("a node that is gone needs nothing", func(t *testing.T) {
		w := newWorld()
		c := w.controller(true)
		w.put(pairedNode(t, "n", "rack:NoExecute"))
		delete(w.stored, "n")
		_, err := c.step(t.Context(), "n")
		require.NoError(t, err)
		_, err = c.step(t.Context(), "never-there")
		require.NoError(t, err)
	})
	t.Run("a node that is on its way out neither", func(t *testing.T) {
		w := newWorld()
		c := w.controller(true)
		leaving := pairedNode(t, "n", "rack:NoExecute")
		leaving.DeletionTimestamp = new(metav1.Now())
		w.put(leaving)
		_, err := c.step(t.Context(), "n")
		require.NoError(t, err)
		calls, _ := w.requests()
		require.Empty(t, calls)
	})
	t.Run("a fault is tried again", func(t *testing.T) {
		w := newWorld()
		c := w.controller(true)
		w.put(pairedNode(t, "n", "rack:NoExecute"))
		w.fault = errors.New("away")
		_, err := c.step(t.Context(), "n")
		require.ErrorContains(t, err, "read node n: away")
	})
	t.Run("policies that were not read yet are waited for", func(t *testing.T) {
		w := newWorld()
		c := w.controller(true)
		w.policies = nil
		w.put(pairedNode(t, "n", "rack:NoExecute"))
		again, err := c.step(t.Context(), "n")
		require.NoError(t, err)
		require.Equal(t, policiesPause, again)
	})
}

func TestTheControllerFollowsNodesAndPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.controller(true)
		w.put(pairedNode(t, "before", "rack:NoExecute"))
		w.put(pairedNode(t, "other", "tor:NoExecute"))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Start(ctx) }()
		rest := func() { time.Sleep(2 * time.Second); synctest.Wait() }
		rest()
		require.Equal(t, []string{"rack:NoExecute", "rack:NoSchedule"}, w.taintsOf("before"))
		require.Equal(t, []string{"tor:NoExecute"}, w.taintsOf("other"))

		w.put(pairedNode(t, "later", "rack:NoExecute"))
		rest()
		require.Equal(t, []string{"rack:NoExecute", "rack:NoSchedule"}, w.taintsOf("later"))

		// The policy changes while this replica does not lead.
		w.mu.Lock()
		w.policies, w.leads = policiesWithWindow("tor"), false
		w.mu.Unlock()
		w.changed <- struct{}{}
		rest()
		require.Equal(t, []string{"tor:NoExecute"}, w.taintsOf("other"))
		w.mu.Lock()
		w.leads = true
		w.mu.Unlock()
		rest()
		require.Equal(t, []string{"tor:NoExecute", "tor:NoSchedule"}, w.taintsOf("other"))
		require.Equal(t, []string{"rack:NoExecute"}, w.taintsOf("before"))
		require.Equal(t, []string{"rack:NoExecute"}, w.taintsOf("later"))
		stop()
		require.NoError(t, <-done)
	})
}

func TestAnotherModeRemovesWhatWasAdded(t *testing.T) {
	w := newWorld()
	w.put(pairedNode(t, "n", "rack:NoExecute"))
	_, err := w.controller(true).step(t.Context(), "n")
	require.NoError(t, err)
	_, err = w.controller(false).step(t.Context(), "n")
	require.NoError(t, err)
	require.Equal(t, []string{"rack:NoExecute"}, w.taintsOf("n"))
}
