package slicepatches

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// queueName is the name label of the workqueue metrics.
const queueName = "tollgate-patches"

// view reports the devices of patches; sliceview.View implements it.
type view interface {
	Holds(patch *v1alpha1.ResourceSlicePatch) bool
	Report(patch string, naming int) (sliceview.Report, bool)
	AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)
	RemoveEventHandler(registration toolscache.ResourceEventHandlerRegistration) error
}

// ruleIndex reads rules; tracker.Tracker implements it.
type ruleIndex interface {
	Rule(name string) (tracker.Rule, bool)
	PatchRules(patch string) []string
	Patches() []tracker.PatchRef
}

// rules writes DeviceTaintRules; controllers.RuleClient implements it.
type rules interface {
	Get(ctx context.Context, name string) (*resourcev1.DeviceTaintRule, error)
	Create(ctx context.Context, build controllers.BuildRule) error
	Update(ctx context.Context, stored *resourcev1.DeviceTaintRule, build controllers.BuildRule) error
	Delete(ctx context.Context, stored *resourcev1.DeviceTaintRule) error
}

// reader reads objects.
type reader interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
}

// informers is the part of a cache that provides informers.
type informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// applier applies the status of the patch with a name and a UID; of any version if that is
// empty.
type applier interface {
	Apply(ctx context.Context, name string, uid types.UID, version string, status *v1alpha1.ResourceSlicePatchStatus) error
}

// recorder writes events. It must not block.
type recorder interface {
	Eventf(object runtime.Object, eventType, reason, format string, args ...any)
}

// Options configures a Controller. Fields are required unless they say otherwise.
type Options struct {
	// View reports the devices of patches, and ViewSynced whether it has all slices.
	View       view
	ViewSynced func() bool
	// Known reads rules, and KnownSynced reports whether it has all: the controller would
	// treat a missing one as deleted. The component that updates it must call RuleChanged.
	// It is nil where rules are not watched; then none are written.
	Known       ruleIndex
	KnownSynced func() bool
	// Rules writes rules, and is nil with Known.
	Rules rules
	// RulesGate is the feature gate that is off where Rules is nil, and AttributesGate the
	// disabled gate of attributes and capacity, or empty.
	RulesGate, AttributesGate string
	// Cache provides informers of patches and classes, Reader reads them from the cache,
	// and Live from the API server.
	Cache  informers
	Reader reader
	Live   reader
	Status applier
	// Shared is true if Kubernetes' own evictor runs too.
	Shared bool
	// Clock is the clock of the API server, Local that of this machine.
	Clock clock.PassiveClock
	Local clock.WithTicker
	Leads func() bool
	// Timeout bounds a step, see controllers.LoopOptions.
	Timeout  time.Duration
	Recorder recorder
	Metrics  *Metrics
}

// Controller writes the status of patches and the rules for their taints.
type Controller struct {
	options Options
	loop    *controllers.Loop[string]
	// restUntil is the time until which no report is made. Only the single worker uses it
	// and the contents of states.
	restUntil time.Time
	// scheduler is true if a scheduler that applies patches ran at the last read of its
	// Lease, and nextLeaseRead the time of the next. Only the worker uses them.
	scheduler     bool
	nextLeaseRead time.Time

	mu     sync.Mutex
	states map[string]*patchState
	// patchByRule maps the names of rules to their patches; a deleted rule has no other
	// record of it.
	patchByRule map[string]string
}

// patchState is the state of a patch between steps.
type patchState struct {
	// selector selects the devices of the patch by driver, pool and device name alone.
	selector device.Selector
	// reasons identifies the last warning event.
	reasons string
	// statusWrite is the time of the last status write.
	statusWrite time.Time
	// uid and generation identify the patch for which the tracker last had all rules.
	uid        types.UID
	generation int64
	// countedUID and countedGeneration identify the patch of the last report.
	countedUID        types.UID
	countedGeneration int64
	// failed are the rules that cannot be written, by name.
	failed map[string]failedRule
}

// failedRule is a rule that cannot be written. It is not tried until a time, so that it
// does not use up the requests of a step.
type failedRule struct {
	shortfall

	generation int64
	until      time.Time
}

// New returns a controller; Start starts it.
func New(options Options) *Controller {
	c := &Controller{options: options, states: map[string]*patchState{}, patchByRule: map[string]string{}, scheduler: true}
	c.loop = controllers.NewLoop(controllers.LoopOptions[string]{
		Name: queueName, Clock: options.Local, Leads: options.Leads, Timeout: options.Timeout, Workers: 1, Step: c.step,
	})
	return c
}

// Start runs the controller until ctx is done. It returns an error if the view accepts no
// handler.
func (c *Controller) Start(ctx context.Context) error {
	c.mu.Lock()
	clear(c.states)
	c.mu.Unlock()
	slices, err := c.options.View.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: c.enqueueForSlice, UpdateFunc: func(_, obj any) { c.enqueueForSlice(obj) }, DeleteFunc: c.enqueueForSlice,
	})
	if err != nil {
		return fmt.Errorf("follow what patches do to devices: %w", err)
	}
	defer func() { _ = c.options.View.RemoveEventHandler(slices) }()
	var background sync.WaitGroup
	c.loop.Run(ctx, func() {
		c.addAll()
		background.Go(func() { c.watch(ctx, &v1alpha1.ResourceSlicePatch{}, c.enqueuePatch) })
		background.Go(func() { c.watch(ctx, &resourcev1.DeviceClass{}, c.enqueueForClass) })
	})
	background.Wait()
	return nil
}

// watch calls enqueue with the names of objects that have events, until ctx is done.
func (c *Controller) watch(ctx context.Context, object client.Object, enqueue func(name string)) {
	handle := func(obj any) {
		if name, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			enqueue(name)
		}
	}
	controllers.Watch(ctx, c.options.Cache, object, toolscache.ResourceEventHandlerFuncs{
		AddFunc: handle, UpdateFunc: func(_, obj any) { handle(obj) }, DeleteFunc: handle,
	}, c.options.Local)
}

func (c *Controller) enqueuePatch(name string) { c.loop.Add(name) }

// enqueueForClass queues all patches: few name a class, and classes seldom change.
func (c *Controller) enqueueForClass(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.states {
		c.loop.Add(name)
	}
}

// enqueueForSlice queues the patches that may select devices of a slice.
func (c *Controller) enqueueForSlice(obj any) {
	slice, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, m := range c.states {
		if m.selector.MatchesPool(slice.Spec.Driver, slice.Spec.Pool.Name) {
			c.loop.Add(name)
		}
	}
}

// RuleChanged queues the patches of a rule that was created, changed or deleted. It does
// not block.
func (c *Controller) RuleChanged(name string) {
	seen, _ := c.options.Known.Rule(name)
	c.mu.Lock()
	before := c.patchByRule[name]
	if seen.Patch.Name == "" {
		delete(c.patchByRule, name)
	} else {
		c.patchByRule[name] = seen.Patch.Name
	}
	c.mu.Unlock()
	for _, patch := range []string{before, seen.Patch.Name} {
		if patch != "" {
			c.loop.Add(patch)
		}
	}
}

// addAll queues the patches that have rules, including deleted ones.
func (c *Controller) addAll() {
	if c.options.Known == nil {
		return
	}
	for _, patch := range c.options.Known.Patches() {
		c.loop.Add(patch.Name)
	}
}

// stateOf returns the state of a patch, with its current selector.
func (c *Controller) stateOf(patch *v1alpha1.ResourceSlicePatch) *patchState {
	names := slicepatch.NamesOf(patch.Spec.Devices.Filter)
	selector, _ := device.SelectorOf(&names)
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.states[patch.Name]
	if m == nil {
		m = &patchState{}
		c.states[patch.Name] = m
	}
	m.selector = selector
	return m
}

// markWritten records that the tracker has all rules of the patch.
func (c *Controller) markWritten(patch *v1alpha1.ResourceSlicePatch, m *patchState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.uid, m.generation = patch.UID, patch.Generation
}

// Written reports whether all rules of a generation of a patch have been tracked. It is
// false on a replica that does not lead. It is goroutine-safe.
func (c *Controller) Written(name string, uid types.UID, generation int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.states[name]
	return m != nil && m.uid == uid && m.generation == generation
}

func (c *Controller) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.states, name)
}

func referenceTo(patch *v1alpha1.ResourceSlicePatch) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: kindPatch, Name: patch.Name, UID: patch.UID}
}
