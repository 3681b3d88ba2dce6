package slicepatches

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

var errUnused = errors.New("not used here")

// world is an API server with patches, rules, classes and slices, and their caches.
type world struct {
	*tracker.Tracker
	unwatched

	view *sliceview.View

	mu      sync.Mutex // guards what is below
	t       *testing.T
	patches map[string]*v1alpha1.ResourceSlicePatch
	classes map[string]*resourcev1.DeviceClass
	stored  map[string]*resourcev1.DeviceTaintRule
	version int
	calls   []string
	events  []string
	// refused are the names of rules that may not be written, and fault is the error of
	// all other writes of rules.
	refused map[string]bool
	fault   error
	// lease is the Lease of a scheduler that applies patches, and leaseFault the error of
	// reads of it.
	lease      *coordinationv1.Lease
	leaseFault error
	// staleTracker disables updates of the tracker by writes.
	staleTracker bool
	// shared is true if Kubernetes evicts too.
	shared bool
	synced bool
	rules  devicetaints.Rules
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		Tracker: tracker.New(), view: sliceview.New(), t: t, synced: true, refused: map[string]bool{},
		patches: map[string]*v1alpha1.ResourceSlicePatch{}, classes: map[string]*resourcev1.DeviceClass{}, stored: map[string]*resourcev1.DeviceTaintRule{},
	}
	w.rules = ruleAPI{w}
	w.schedule()
	return w
}

func (w *world) controller() *Controller {
	synced := func() bool { return w.synced }
	return New(controller.Base{
		Cache: w, Status: w, Recorder: w, Clock: clock.RealClock{}, Local: clock.RealClock{}, Leads: func() bool { return true }, Timeout: time.Minute,
	}, Options{
		View: w.view, ViewSynced: synced, Live: w, Rules: RuleOptions{Index: w.Tracker, Synced: synced, Client: w.rules},
		Shared: w.shared, Metrics: NewMetrics(prometheus.NewPedanticRegistry()),
	})
}

// schedule renews the Lease of a scheduler.
func (w *world) schedule() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lease = slicepatch.ClaimPresence(w.lease, slicepatch.Scheduler{Holder: "one", Profiles: []string{"default-scheduler"}}, time.Now())
}

// unwatched is a cache without informers.
type unwatched struct{}

func (unwatched) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, errUnused
}

func (unwatched) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errUnused
}

// slice publishes devices with a model each, as name=model.
func (w *world) slice(pool string, devices ...string) {
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: pool},
		Spec:       resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", Pool: resourcev1.ResourcePool{Name: pool, ResourceSliceCount: 1}},
	}
	for _, words := range devices {
		name, model, _ := strings.Cut(words, "=")
		d := resourcev1.Device{Name: name}
		if model != "" {
			d.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, d)
	}
	w.view.SetSlice(slice)
}

// patch writes a patch with spec.devices in YAML.
func (w *world) patch(name, devices string) *v1alpha1.ResourceSlicePatch {
	w.t.Helper()
	patch := &v1alpha1.ResourceSlicePatch{}
	require.NoError(w.t, yaml.UnmarshalStrict([]byte(devices), &patch.Spec.Devices))
	patch.Name, patch.Generation = name, 1
	w.mu.Lock()
	defer w.mu.Unlock()
	patch.UID = types.UID("uid-of-" + name)
	if was := w.patches[name]; was != nil {
		patch.Generation, patch.Status, patch.UID = was.Generation+1, was.Status, was.UID
	}
	w.store(patch)
	return patch
}

// store stores a version of a patch. The caller holds the lock.
func (w *world) store(patch *v1alpha1.ResourceSlicePatch) {
	w.version++
	patch.ResourceVersion = strconv.Itoa(w.version)
	w.patches[patch.Name] = patch
	w.view.SetPatch(patch)
}

func (w *world) deletePatch(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.patches, name)
	w.view.DeletePatch(name)
}

func (w *world) class(name, expression string) {
	class := &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}},
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.classes[name] = class
	w.view.SetClass(class)
}

// Get implements reader.
func (w *world) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch obj := obj.(type) {
	case *v1alpha1.ResourceSlicePatch:
		if patch, ok := w.patches[key.Name]; ok {
			patch.DeepCopyInto(obj)
			return nil
		}
	case *coordinationv1.Lease:
		if w.leaseFault != nil {
			return w.leaseFault
		}
		if w.lease != nil {
			w.lease.DeepCopyInto(obj)
			return nil
		}
	case *resourcev1.DeviceClass:
		if class, ok := w.classes[key.Name]; ok {
			class.DeepCopyInto(obj)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// appliedStatus decodes the server-side apply of a status.
func appliedStatus(t *testing.T, patch client.Patch, opts []client.SubResourcePatchOption) *v1alpha1.ResourceSlicePatch {
	t.Helper()
	require.Equal(t, types.ApplyPatchType, patch.Type())
	options := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
	require.Equal(t, fieldManager, options.FieldManager)
	require.True(t, *options.Force)
	body, err := patch.Data(nil)
	require.NoError(t, err)
	applied := &v1alpha1.ResourceSlicePatch{}
	require.NoError(t, yaml.UnmarshalStrict(body, applied))
	require.Equal(t, v1alpha1.GroupVersion.WithKind("ResourceSlicePatch"), applied.GroupVersionKind())
	return applied
}

// Patch implements controller.StatusWriter.
func (w *world) Patch(_ context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	applied := appliedStatus(w.t, patch, opts)
	name, uid, version, status := obj.GetName(), applied.UID, applied.ResourceVersion, &applied.Status
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, "status "+name)
	was, ok := w.patches[name]
	if !ok || was.UID != uid {
		return apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	if version != "" && version != was.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{}, name, errors.New("it was written since"))
	}
	next := was.DeepCopy()
	conditions := slices.DeleteFunc(next.Status.Conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionReady })
	status.DeepCopyInto(&next.Status)
	next.Status.Conditions = append(next.Status.Conditions, conditions...)
	w.store(next)
	return nil
}

// Eventf implements recorder.
func (w *world) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	reference, ok := object.(*corev1.ObjectReference)
	require.True(w.t, ok)
	w.events = append(w.events, eventType+" "+reason+" "+reference.Name+": "+fmt.Sprintf(format, args...))
}

// ruleAPI implements rules.
type ruleAPI struct{ *world }

var ruleResource = schema.GroupResource{Group: "resource.k8s.io", Resource: "devicetaintrules"}

// Get implements rules.
func (a ruleAPI) Get(_ context.Context, name string) (*resourcev1.DeviceTaintRule, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, "get "+name)
	if rule, ok := a.stored[name]; ok {
		return rule.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(ruleResource, name)
}

// Create implements rules.
func (a ruleAPI) Create(_ context.Context, build devicetaints.BuildRule) error {
	object := build("resource.k8s.io/v1")
	if err := a.answer("create", object.Name); err != nil {
		return err
	}
	a.put(object)
	return nil
}

// Update implements rules.
func (a ruleAPI) Update(_ context.Context, stored *resourcev1.DeviceTaintRule, build devicetaints.BuildRule) error {
	if err := a.answer("update", stored.Name); err != nil {
		return err
	}
	object := build("resource.k8s.io/v1")
	object.UID = stored.UID
	a.put(object)
	return nil
}

// Delete implements rules.
func (a ruleAPI) Delete(_ context.Context, stored *resourcev1.DeviceTaintRule) error {
	if err := a.answer("delete", stored.Name); err != nil {
		return err
	}
	a.drop(stored.Name)
	return nil
}

func (w *world) answer(operation, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, operation+" "+name)
	if w.refused[name] {
		return apierrors.NewForbidden(ruleResource, name, errors.New("by a test"))
	}
	return w.fault
}

// put stores a rule of another writer.
func (w *world) put(object *resourcev1.DeviceTaintRule) {
	// Stored rules are read back from JSON.
	content, err := json.Marshal(object)
	require.NoError(w.t, err)
	object = &resourcev1.DeviceTaintRule{}
	require.NoError(w.t, json.Unmarshal(content, object))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	object.ResourceVersion = strconv.Itoa(w.version)
	if object.UID == "" {
		object.UID = types.UID("uid-" + object.ResourceVersion)
	}
	w.stored[object.Name] = object
	if !w.staleTracker {
		w.SetRule(tracker.RuleOf(object), time.Unix(0, 0))
	}
}

func (w *world) drop(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	object := w.stored[name]
	delete(w.stored, name)
	if !w.staleTracker {
		w.DeleteRule(name, object.UID)
	}
}

// syncTracker sends the missed updates to the tracker.
func (w *world) syncTracker() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.staleTracker = false
	for _, object := range w.stored {
		w.SetRule(tracker.RuleOf(object), time.Unix(0, 0))
	}
}

// ruleText returns the rules as text.
func (w *world) ruleText() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	words := []string{}
	for _, object := range w.stored {
		s := object.Spec.DeviceSelector
		at := make([]string, 0, 3)
		for _, part := range []*string{s.Driver, s.Pool, s.Device} {
			if part == nil {
				part = new("*")
			}
			at = append(at, *part)
		}
		taint := object.Spec.Taint
		text := strings.Join(at, "/") + " " + taint.Key + "=" + taint.Value + ":" + string(taint.Effect)
		if effect, ok := object.Annotations[v1alpha1.AnnotationPatchEffect]; ok {
			text += " meant " + effect
		}
		words = append(words, text)
	}
	slices.Sort(words)
	return words
}

// taken returns the calls since the last time, and the events.
func (w *world) taken() (calls, events []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls, events, w.calls, w.events = w.calls, w.events, nil, nil
	return calls, events
}

// step runs steps for a patch until it has nothing to write.
func (w *world) step(c *Controller, name string) {
	w.t.Helper()
	for range 100 {
		again, err := c.reconcile(w.t.Context(), name)
		require.NoError(w.t, err)
		if again == 0 || again > time.Millisecond {
			return
		}
	}
	require.Fail(w.t, "it never ends")
}

// status returns the status of a patch.
func (w *world) status(name string) v1alpha1.ResourceSlicePatchStatus {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Contains(w.t, slices.Collect(maps.Keys(w.patches)), name)
	return *w.patches[name].Status.DeepCopy()
}

// ready returns the condition Ready of a patch as text.
func (w *world) ready(name string) string {
	w.t.Helper()
	status := w.status(name)
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	require.NotNil(w.t, c)
	require.False(w.t, c.LastTransitionTime.IsZero())
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}
