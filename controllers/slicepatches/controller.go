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

// view knows which devices patches are for; a sliceview.View does.
type view interface {
	Holds(patch *v1alpha1.ResourceSlicePatch) bool
	Report(patch string, naming int) (sliceview.Report, bool)
	AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)
	RemoveEventHandler(registration toolscache.ResourceEventHandlerRegistration) error
}

// known knows rules; a tracker.Tracker does.
type known interface {
	Rule(name string) (tracker.Rule, bool)
	PatchRules(patch string) []string
	Patches() []tracker.PatchRef
}

// rules writes DeviceTaintRules; a controllers.RuleClient does.
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

// informers is what is used of a cache.
type informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// applier writes the status of the patch with a name and a UID, in the place of what it
// wrote before; of any version of it where that is empty.
type applier interface {
	Apply(ctx context.Context, name string, uid types.UID, version string, status *v1alpha1.ResourceSlicePatchStatus) error
}

// recorder writes events. It must not block.
type recorder interface {
	Eventf(object runtime.Object, eventType, reason, format string, args ...any)
}

// Options are what a Controller works with. All are required, but as said.
type Options struct {
	// View knows which devices patches are for, and ViewSynced whether it knows all.
	View       view
	ViewSynced func() bool
	// Known knows rules, and KnownSynced whether it knows all: what is not known would be
	// taken for gone. Who feeds it calls RuleChanged. It is nil where rules are not
	// followed; then none are written.
	Known       known
	KnownSynced func() bool
	// Rules writes rules, and is nil with Known.
	Rules rules
	// RulesGate is the feature gate that is off where Rules is nil, and AttributesGate the
	// one that is off for attributes and capacity; empty if that is on.
	RulesGate, AttributesGate string
	// Cache has patches and classes, Reader reads them from there, and Live from the API
	// server.
	Cache  informers
	Reader reader
	Live   reader
	Status applier
	// Shared says that Kubernetes' own evictor runs too.
	Shared bool
	// Clock tells the time of the API server, Local that of this machine.
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
	// rest is until when no patch is counted. It is the worker's, of which there is one,
	// as is what memories hold.
	rest time.Time
	// scheduler is true if one runs that applies patches, as was last seen, and askAgain is
	// when to look again. They are the worker's too.
	scheduler bool
	askAgain  time.Time

	mu       sync.Mutex
	memories map[string]*memory
	// written says of which patch a rule is, by the name of the rule: of one that is gone
	// nobody else does.
	written map[string]string
}

// memory is what is remembered of a patch.
type memory struct {
	// selector selects by name the devices that the patch may be for.
	selector device.Selector
	// reasons are why it is not in force as written, as was last said by an event.
	reasons string
	// written is when the status was last written because of devices alone.
	written time.Time
	// uid and generation are of the patch for which all rules were last known.
	uid        types.UID
	generation int64
	// countedUID and countedGeneration are of the patch that was last counted.
	countedUID        types.UID
	countedGeneration int64
	// stuck are the rules that cannot be written, by name.
	stuck map[string]stuck
}

// stuck is a rule that cannot be written. It is not asked about for a while, so that
// others are.
type stuck struct {
	shortfall

	generation int64
	until      time.Time
}

// New returns a controller. It starts nothing: that is what Start does.
func New(options Options) *Controller {
	c := &Controller{options: options, memories: map[string]*memory{}, written: map[string]string{}, scheduler: true}
	c.loop = controllers.NewLoop(controllers.LoopOptions[string]{
		Name: queueName, Clock: options.Local, Leads: options.Leads, Timeout: options.Timeout, Workers: 1, Step: c.step,
	})
	return c
}

// Start works until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	c.mu.Lock()
	clear(c.memories)
	c.mu.Unlock()
	slices, err := c.options.View.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: c.slice, UpdateFunc: func(_, obj any) { c.slice(obj) }, DeleteFunc: c.slice,
	})
	if err != nil {
		return fmt.Errorf("follow what patches do to devices: %w", err)
	}
	defer func() { _ = c.options.View.RemoveEventHandler(slices) }()
	var following sync.WaitGroup
	c.loop.Run(ctx, func() {
		c.addAll()
		following.Go(func() { c.watch(ctx, &v1alpha1.ResourceSlicePatch{}, c.patch) })
		following.Go(func() { c.watch(ctx, &resourcev1.DeviceClass{}, c.class) })
	})
	following.Wait()
	return nil
}

// watch has what is told of seen to until ctx is done.
func (c *Controller) watch(ctx context.Context, object client.Object, seen func(name string)) {
	tell := func(obj any) {
		if name, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			seen(name)
		}
	}
	controllers.Watch(ctx, c.options.Cache, object, toolscache.ResourceEventHandlerFuncs{
		AddFunc: tell, UpdateFunc: func(_, obj any) { tell(obj) }, DeleteFunc: tell,
	}, c.options.Local)
}

func (c *Controller) patch(name string) { c.loop.Add(name) }

// class has all patches looked at: few ask for a class, and classes seldom change.
func (c *Controller) class(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.memories {
		c.loop.Add(name)
	}
}

// slice has the patches looked at that may be for devices of a slice.
func (c *Controller) slice(obj any) {
	slice, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, m := range c.memories {
		if m.selector.MatchesPool(slice.Spec.Driver, slice.Spec.Pool.Name) {
			c.loop.Add(name)
		}
	}
}

// RuleChanged names a rule that was created, changed or deleted. It does not block.
func (c *Controller) RuleChanged(name string) {
	seen, _ := c.options.Known.Rule(name)
	c.mu.Lock()
	before := c.written[name]
	if seen.Patch.Name == "" {
		delete(c.written, name)
	} else {
		c.written[name] = seen.Patch.Name
	}
	c.mu.Unlock()
	for _, patch := range []string{before, seen.Patch.Name} {
		if patch != "" {
			c.loop.Add(patch)
		}
	}
}

// addAll has the patches looked at that have rules, though they may be gone.
func (c *Controller) addAll() {
	if c.options.Known == nil {
		return
	}
	for _, patch := range c.options.Known.Patches() {
		c.loop.Add(patch.Name)
	}
}

// remember returns the memory of a patch.
func (c *Controller) remember(patch *v1alpha1.ResourceSlicePatch) *memory {
	names := slicepatch.NamesOf(patch.Spec.Devices.Filter)
	selector, _ := device.SelectorOf(&names)
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.memories[patch.Name]
	if m == nil {
		m = &memory{}
		c.memories[patch.Name] = m
	}
	m.selector = selector
	return m
}

// complete takes in that all rules of a patch are known, as it is now.
func (c *Controller) complete(patch *v1alpha1.ResourceSlicePatch, m *memory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.uid, m.generation = patch.UID, patch.Generation
}

// Written reports whether all rules of a patch were known since it came to be of a
// generation. It is false where this replica does not lead, and goroutine-safe.
func (c *Controller) Written(name string, uid types.UID, generation int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.memories[name]
	return m != nil && m.uid == uid && m.generation == generation
}

func (c *Controller) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.memories, name)
}

func referenceTo(patch *v1alpha1.ResourceSlicePatch) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: kindPatch, Name: patch.Name, UID: patch.UID}
}
