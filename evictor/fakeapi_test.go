package evictor

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// request is one call of the evictor, as a test reads it: "get nodes n",
// "patch pods/status default/a", "delete pods default/a".
type request string

// fakeAPI answers the client as an API server does, as far as the evictor goes:
// versions, preconditions, patches, graceful deletion. What changes goes out to
// the watchers at once, or is held back while the watch lags.
type fakeAPI struct {
	client *fake.Clientset
	nodes  *watchers
	pods   *watchers
	// devices is told of slices, rules and claims.
	devices *deviceFeed

	mu       sync.Mutex
	version  int
	objects  map[string]runtime.Object
	requests []request
	// refuse is asked before a request is carried out, lose after.
	refuse func(request) error
	lose   func(request) error
	// graceful makes pods stay until their kubelet lets go of them.
	graceful bool
	// budgets are how many pods each PodDisruptionBudget lets go, by its name. It guards
	// the pods with that name in their label "app", or in "app2".
	budgets map[string]int
	lagging bool
	held    []change
}

// change is what happened to an object, nil for none.
type change struct{ old, obj runtime.Object }

// key names the object that changed.
func (c change) key() string {
	if c.obj == nil {
		return keyOf(c.old)
	}
	return keyOf(c.obj)
}

// watchers are the handlers of one kind of object.
type watchers struct {
	mu       sync.Mutex
	handlers []toolscache.ResourceEventHandler
}

func (w *watchers) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handlers = append(w.handlers, handler)
	return synced{}, nil
}

func (w *watchers) tell(call func(toolscache.ResourceEventHandler)) {
	w.mu.Lock()
	handlers := slices.Clone(w.handlers)
	w.mu.Unlock()
	for _, handler := range handlers {
		call(handler)
	}
}

func (w *watchers) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handlers = nil
}

type synced struct {
	toolscache.ResourceEventHandlerRegistration
}

func (synced) HasSynced() bool { return true }

func newFakeAPI() *fakeAPI {
	api := &fakeAPI{
		client: fake.NewClientset(), objects: map[string]runtime.Object{}, budgets: map[string]int{},
		nodes: &watchers{}, pods: &watchers{}, graceful: true, version: 100,
	}
	api.client.PrependReactor("*", "*", api.react)
	return api
}

// attach lists everything to two feeds and subscribes them.
func (f *fakeAPI) attach(t *testing.T, feed *informer.Feed, devices *deviceFeed) {
	t.Helper()
	f.devices = devices
	f.nodes.clear()
	f.pods.clear()
	require.NoError(t, feed.Attach(f.nodes, f.pods))
	f.mu.Lock()
	f.held = nil
	objects := slices.Collect(maps.Values(f.objects))
	f.mu.Unlock()
	for _, obj := range objects {
		f.deliver(nil, obj)
	}
	devices.synced()
}

func (f *fakeAPI) of(obj runtime.Object) *watchers {
	if _, ok := obj.(*corev1.Node); ok {
		return f.nodes
	}
	return f.pods
}

// keyOf returns what an object is stored under: its name, behind that of its
// resource unless it is a node or a pod.
func keyOf(obj runtime.Object) string {
	name := obj.(metav1.Object).GetName()
	if namespace := obj.(metav1.Object).GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return prefixes[resourceOf(obj)] + name
}

// store writes an object, whole, and tells the watchers. The caller does not hold
// the lock.
func (f *fakeAPI) store(obj runtime.Object) runtime.Object {
	f.mu.Lock()
	old := f.objects[keyOf(obj)]
	stored := f.put(obj)
	f.mu.Unlock()
	f.told(old, stored)
	return stored
}

// put writes an object; the caller holds the lock.
func (f *fakeAPI) put(obj runtime.Object) runtime.Object {
	f.version++
	stored := obj.DeepCopyObject()
	stored.(metav1.Object).SetResourceVersion(strconv.Itoa(f.version))
	f.objects[keyOf(obj)] = stored
	return stored
}

// restore brings back a node as it was, with the version that it had, and counts on from there.
func (f *fakeAPI) restore(node *corev1.Node, version int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version = version
	f.objects[keyOf(node)] = node
}

// remove takes an object away, as a kubelet does with a pod that has ended.
func (f *fakeAPI) remove(key string) {
	f.mu.Lock()
	old, ok := f.objects[key]
	delete(f.objects, key)
	f.mu.Unlock()
	if ok {
		f.told(old, nil)
	}
}

// told tells the watchers of a change, now or when the watch no longer lags.
func (f *fakeAPI) told(old, obj runtime.Object) {
	f.mu.Lock()
	if f.lagging {
		f.held = append(f.held, change{old, obj})
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	f.deliver(old, obj)
}

// deliver passes a change on to whoever watches such objects.
func (f *fakeAPI) deliver(old, obj runtime.Object) {
	tell := func(h toolscache.ResourceEventHandler) {
		switch {
		case obj == nil:
			h.OnDelete(old.DeepCopyObject())
		case old == nil:
			h.OnAdd(obj.DeepCopyObject(), false)
		default:
			h.OnUpdate(old.DeepCopyObject(), obj.DeepCopyObject())
		}
	}
	some := obj
	if obj == nil {
		some = old
	}
	if prefixes[resourceOf(some)] == "" {
		f.of(some).tell(tell)
	} else if f.devices != nil {
		tell(f.devices.handlers[resourceOf(some)])
	}
}

func (f *fakeAPI) setLag(lagging bool) {
	f.mu.Lock()
	f.lagging = lagging
	held := f.held
	f.held = nil
	f.mu.Unlock()
	for _, c := range held {
		f.deliver(c.old, c.obj)
	}
}

func (f *fakeAPI) setFaults(refuse, lose func(request) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse, f.lose = refuse, lose
}

// pod returns a pod as it is stored, nil when there is none.
func (f *fakeAPI) pod(key string) *corev1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.objects[key].(*corev1.Pod)
	if !ok {
		return nil
	}
	return p.DeepCopy()
}

func (f *fakeAPI) node(name string) *corev1.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.objects[name].(*corev1.Node)
	if !ok {
		return nil
	}
	return n.DeepCopy()
}

// took returns the requests since the last call.
func (f *fakeAPI) took() []request {
	f.mu.Lock()
	defer f.mu.Unlock()
	requests := f.requests
	f.requests = nil
	return requests
}

// react is the reactor of the fake client.
func (f *fakeAPI) react(action clienttesting.Action) (bool, runtime.Object, error) {
	resource := action.GetResource().Resource
	name := nameIn(action)
	if action.GetNamespace() != "" {
		name = action.GetNamespace() + "/" + name
	}
	req := request(action.GetVerb() + " " + resource + " " + name)
	if sub := action.GetSubresource(); sub != "" {
		req = request(action.GetVerb() + " " + resource + "/" + sub + " " + name)
	}
	f.mu.Lock()
	f.requests = append(f.requests, req)
	refuse, lose := f.refuse, f.lose
	f.mu.Unlock()
	if refuse != nil {
		if err := refuse(req); err != nil {
			return true, nil, err
		}
	}
	old, obj, err := f.carryOut(action, name)
	if old != nil && err == nil {
		f.told(old, obj)
	}
	if lose != nil && err == nil {
		err = lose(req)
	}
	if err != nil {
		return true, nil, err
	}
	return true, obj, nil
}

// carryOut does what a request asks for. Nothing was changed when old is nil.
func (f *fakeAPI) carryOut(action clienttesting.Action, name string) (old, obj runtime.Object, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	group := schema.GroupResource{Resource: action.GetResource().Resource}
	current, ok := f.objects[prefixes[group.Resource]+name]
	if !ok {
		return nil, nil, apierrors.NewNotFound(group, name)
	}
	switch a := action.(type) {
	case clienttesting.GetActionImpl:
		return nil, current.DeepCopyObject(), nil
	case clienttesting.PatchActionImpl:
		patched, err := patch(current, a.GetPatchType(), a.GetPatch())
		if err != nil {
			return nil, nil, err
		}
		was, is := current.(metav1.Object), patched.(metav1.Object)
		if is.GetResourceVersion() != was.GetResourceVersion() || is.GetUID() != was.GetUID() {
			return nil, nil, apierrors.NewConflict(group, name, errors.New("the object has been modified"))
		}
		return current, f.put(patched).DeepCopyObject(), nil
	case clienttesting.DeleteActionImpl:
		return f.deletePod(current.(*corev1.Pod), a.DeleteOptions, group)
	case clienttesting.CreateActionImpl:
		return f.evictPod(current.(*corev1.Pod), a.Object.(*policyv1.Eviction), group)
	}
	return nil, nil, fmt.Errorf("unexpected %s", action.GetVerb())
}

func (f *fakeAPI) deletePod(pod *corev1.Pod, options metav1.DeleteOptions, group schema.GroupResource) (old, obj runtime.Object, err error) {
	if p := options.Preconditions; p != nil {
		if (p.UID != nil && *p.UID != pod.UID) || (p.ResourceVersion != nil && *p.ResourceVersion != pod.ResourceVersion) {
			return nil, nil, apierrors.NewConflict(group, pod.Name, errors.New("precondition failed"))
		}
	}
	if !f.graceful {
		delete(f.objects, keyOf(pod))
		return pod, nil, nil
	}
	if pod.DeletionTimestamp != nil {
		return nil, nil, nil
	}
	ending := pod.DeepCopy()
	ending.DeletionTimestamp = new(metav1.Now())
	return pod, f.put(ending).DeepCopyObject(), nil
}

func patch(obj runtime.Object, kind types.PatchType, body []byte) (runtime.Object, error) {
	original, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	var patched []byte
	if kind == types.JSONPatchType {
		operations, err := jsonpatch.DecodePatch(body)
		if err != nil {
			return nil, err
		}
		if patched, err = operations.Apply(original); err != nil {
			return nil, apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
	} else if patched, err = strategicpatch.StrategicMergePatch(original, body, obj); err != nil {
		return nil, err
	}
	result := obj.DeepCopyObject()
	switch typed := result.(type) {
	case *corev1.Node:
		*typed = corev1.Node{}
	case *corev1.Pod:
		*typed = corev1.Pod{}
	}
	return result, json.Unmarshal(patched, result)
}
