package slicepatches

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

const (
	// syncPause is how long a patch waits for the view and the tracker to sync.
	syncPause = time.Second
	// viewPause is how long a patch waits until the view has it.
	viewPause = 50 * time.Millisecond
	// recheck is the delay until a patch is reconciled again without an event.
	recheck = time.Minute
	// countPause is the minimum time between two status writes that differ only in the
	// counts and names of devices: drivers may publish every second.
	countPause = 5 * time.Second
	// presencePause is the delay between two reads of the Lease of a scheduler.
	presencePause = 10 * time.Second
	// After a report, the worker rests share times as long as it took, at most restMax:
	// many patches over many devices must not use a whole core.
	share   = 19
	restMax = 2 * time.Second
)

// NewMetrics registers the counter of the writes of rules with reg.
func NewMetrics(reg prometheus.Registerer) *prometheus.CounterVec {
	return controller.NewCounter(reg, "tollgate_patch_rule_writes_total",
		"Writes of DeviceTaintRules for the taints of ResourceSlicePatches, by operation.",
		"operation", devicetaints.OperationCreate, devicetaints.OperationUpdate, devicetaints.OperationDelete)
}

// RuleOptions configures the writes of rules.
type RuleOptions struct {
	// Index reads rules, and Synced reports whether it has all: the controller would treat
	// a missing one as deleted. The component that updates it must call RuleChanged. It is
	// nil where rules are not watched; then none are written.
	Index  *tracker.Tracker
	Synced func() bool
	// Client writes rules.
	Client devicetaints.Rules
	// Gate is the feature gate that is off where Index is nil.
	Gate string
}

// Options configures a Controller. Fields are required unless they say otherwise.
type Options struct {
	// View reports the devices of patches, and ViewSynced whether it has all slices.
	View       *sliceview.View
	ViewSynced func() bool
	// Live reads patches and Leases from the API server.
	Live  client.Reader
	Rules RuleOptions
	// AttributesGate is the disabled gate of attributes and capacity, or empty.
	AttributesGate string
	// Shared is true if Kubernetes' own evictor runs too.
	Shared  bool
	Metrics *prometheus.CounterVec
}

// Controller writes the status of patches and the rules for their taints.
type Controller struct {
	*controller.Controller[string]
	Options

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

// patchState is the state of a patch between attempts.
type patchState struct {
	// selector selects the devices of the patch by driver, pool and device name alone.
	selector device.Selector
	// warned identifies the last warning event.
	warned warning
	// statusWrite is the time of the last status write.
	statusWrite time.Time
	// written is the version of the patch for which the tracker last had all rules, and
	// counted that of the last report.
	written, counted version
	// failed are the rules of the counted version that cannot be written, by name.
	failed map[string]failedRule
}

// warning identifies a warning event; it is zero for a patch that is in force.
type warning struct {
	version

	reason string
}

// version identifies a generation of a patch.
type version struct {
	uid        types.UID
	generation int64
}

func versionOf(patch *v1alpha1.ResourceSlicePatch) version {
	return version{patch.UID, patch.Generation}
}

// New returns a controller; Start starts it. The cache of base holds patches and
// DeviceClasses.
func New(base controller.Base, options Options) *Controller {
	c := &Controller{Options: options, states: map[string]*patchState{}, patchByRule: map[string]string{}, scheduler: true}
	c.Controller = controller.New(base, controller.Options[string]{
		Name: "tollgate-patches", Started: c.started, Reconcile: c.reconcile,
		Watches: map[client.Object]toolscache.ResourceEventHandler{
			&v1alpha1.ResourceSlicePatch{}: controller.OnEvent(func(patch client.Object) { c.Add(patch.GetName()) }),
			// Few patches name a class, and classes seldom change.
			&resourcev1.DeviceClass{}: controller.OnEvent(func(client.Object) { c.addMatching(func(device.Selector) bool { return true }) }),
		},
	})
	return c
}

// Start runs the controller until ctx is done. It returns an error if the view accepts no
// handler.
func (c *Controller) Start(ctx context.Context) error {
	registration, err := c.View.AddEventHandler(controller.OnEvent(func(object client.Object) {
		spec := &object.(*resourcev1.ResourceSlice).Spec
		c.addMatching(func(s device.Selector) bool { return s.MatchesPool(spec.Driver, spec.Pool.Name) })
	}))
	if err != nil {
		return fmt.Errorf("follow what patches do to devices: %w", err)
	}
	defer func() { _ = c.View.RemoveEventHandler(registration) }()
	return c.Controller.Start(ctx)
}

// started removes the states of an earlier term, and queues the patches that have rules,
// including deleted ones.
func (c *Controller) started() {
	c.mu.Lock()
	clear(c.states)
	c.mu.Unlock()
	if c.Rules.Index == nil {
		return
	}
	for _, patch := range c.Rules.Index.Patches() {
		c.Add(patch.Name)
	}
}

// addMatching queues the patches whose selector matches.
func (c *Controller) addMatching(matches func(device.Selector) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, m := range c.states {
		if matches(m.selector) {
			c.Add(name)
		}
	}
}

// RuleChanged queues the patches of a rule that was created, changed or deleted. It does
// not block.
func (c *Controller) RuleChanged(name string) {
	rule, _ := c.Rules.Index.Rule(name)
	c.mu.Lock()
	before := c.patchByRule[name]
	if rule.Patch.Name == "" {
		delete(c.patchByRule, name)
	} else {
		c.patchByRule[name] = rule.Patch.Name
	}
	c.mu.Unlock()
	for _, patch := range []string{before, rule.Patch.Name} {
		if patch != "" {
			c.Add(patch)
		}
	}
}

// Written reports whether all rules of a generation of a patch have been tracked. The patch is
// a rule with its name, UID and generation. It is false on a replica that does not lead. It is
// goroutine-safe.
func (c *Controller) Written(patch *tracker.Rule) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.states[patch.Name]
	return m != nil && m.written == version{patch.UID, patch.Generation}
}

// read returns a patch and its state, nil if the patch does not exist.
func (c *Controller) read(ctx context.Context, name string) (*v1alpha1.ResourceSlicePatch, *patchState, error) {
	patch := &v1alpha1.ResourceSlicePatch{}
	err := c.Cache.Get(ctx, types.NamespacedName{Name: name}, patch)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if apierrors.IsNotFound(err) {
			delete(c.states, name)
		}
		return nil, nil, client.IgnoreNotFound(fmt.Errorf("read ResourceSlicePatch %s: %w", name, err))
	}
	m := c.states[name]
	if m == nil {
		m = &patchState{}
		c.states[name] = m
	}
	names := slicepatch.NamesOf(patch.Spec.Devices.Filter)
	m.selector, _ = device.SelectorOf(&names)
	return patch, m, nil
}

// reconcile reconciles one patch.
func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	if !c.ViewSynced() || c.Rules.Index != nil && !c.Rules.Synced() {
		return syncPause, nil
	}
	patch, m, err := c.read(ctx, name)
	if err == nil && patch != nil && m.counted == versionOf(patch) {
		// A new version of a patch does not wait for the reports of others.
		select {
		case <-ctx.Done():
		case <-c.Local.After(c.restUntil.Sub(c.Local.Now())):
		}
		patch, m, err = c.read(ctx, name)
	}
	if err != nil {
		return 0, err
	}
	if patch == nil {
		return c.removeRules(ctx, name)
	}
	report, ok := c.report(patch) //nolint:contextcheck // What is asked here ends by its cost.
	if !ok {
		return viewPause, nil
	}
	if version := versionOf(patch); m.counted != version {
		m.counted, m.failed = version, map[string]failedRule{}
	}
	return c.apply(ctx, patch, m, &report)
}

// apply records the times of taints in the status, then writes the rules, and then the
// rest of the status.
func (c *Controller) apply(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, m *patchState, report *sliceview.Report) (time.Duration, error) {
	// An invalid patch has no times.
	var times []v1alpha1.PatchedTaint
	var taints []resourcev1.DeviceTaint
	if len(report.Problems) == 0 {
		times, taints = datedTaints(patch, c.Clock.Now())
	}
	if !equality.Semantic.DeepEqual(patch.Status.Taints, times) {
		patch.Status.Taints = times
		// The resourceVersion prevents that an old cache overwrites a recorded time.
		if err := c.applyStatus(ctx, patch, patch.ResourceVersion, withOwnReady(&patch.Status)); err != nil {
			return 0, err
		}
	}
	missing := reportShortfalls(report)
	c.addShortfalls(ctx, patch, &missing)
	w := &ruleWriter{Controller: c, patch: patch, m: m, left: writesAtOnce}
	more, err := w.write(ctx, taints, report)
	if err != nil {
		return 0, err
	}
	if more == 0 && !w.behind {
		c.mu.Lock()
		m.written = versionOf(patch)
		c.mu.Unlock()
	}
	wanted := statusOf(patch, report, times, append(missing, w.shortfalls...), c.Clock.Now())
	again, err := c.writeStatus(ctx, patch, m, &wanted)
	return cmp.Or(more, again), err
}

// report returns the devices that a patch selects; false if the view does not hold this
// version of it before and after: devices of another version must not get the taints of
// this one.
func (c *Controller) report(patch *v1alpha1.ResourceSlicePatch) (sliceview.Report, bool) {
	if !c.View.Holds(patch) {
		return sliceview.Report{}, false
	}
	naming := maxNamed
	if slicepatch.Conditional(patch.Spec.Devices.Filter) && len(patch.Spec.Devices.Taints) > 0 {
		naming = maxRules + 1
	}
	began := c.Local.Now()
	report, ok := c.View.Report(patch.Name, naming)
	ended := c.Local.Now()
	c.restUntil = ended.Add(min(share*ended.Sub(began), restMax))
	return report, ok && c.View.Holds(patch)
}

// addShortfalls adds the reasons, apart from taints and from its report, why a patch is not
// in force as written.
func (c *Controller) addShortfalls(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, missing *shortfalls) {
	devices := &patch.Spec.Devices
	if filter := devices.Filter; filter != nil && filter.DeviceClassName != nil {
		err := c.Cache.Get(ctx, types.NamespacedName{Name: *filter.DeviceClassName}, &resourcev1.DeviceClass{})
		if apierrors.IsNotFound(err) {
			missing.add(ReasonClassNotFound, "there is no DeviceClass %s, so that no device is selected", *filter.DeviceClassName)
		}
	}
	attributed := len(devices.Attributes)+len(devices.Capacity) > 0
	switch {
	case attributed && c.AttributesGate != "":
		missing.add(ReasonDisabled, "attributes and capacity change nothing: the feature gate %s is off", c.AttributesGate)
	case attributed && !c.schedulerRuns(ctx):
		missing.add(ReasonNoScheduler,
			"attributes and capacity change nothing, because no scheduler that applies patches runs: nobody renews the Lease %s/%s; docs/scheduler.md says how to run one",
			slicepatch.PresenceNamespace, slicepatch.Name)
	}
	if patch.Spec.Publish {
		missing.add(ReasonNotPublished,
			"spec.publish does nothing: nothing is written into ResourceSlices, because drivers take what is for their own; schedulers that apply patches see attributes and capacity")
	}
}

// schedulerRuns reports whether a scheduler runs that applies patches. If the Lease cannot
// be read, it returns the last result.
func (c *Controller) schedulerRuns(ctx context.Context) bool {
	now := c.Local.Now()
	if now.Before(c.nextLeaseRead) {
		return c.scheduler
	}
	c.nextLeaseRead = now.Add(presencePause)
	var lease coordinationv1.Lease // It stays empty if there is none.
	err := c.Live.Get(ctx, types.NamespacedName{Namespace: slicepatch.PresenceNamespace, Name: slicepatch.Name}, &lease)
	if client.IgnoreNotFound(err) != nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("cannot see whether a scheduler applies patches", "reason", err.Error())
		return c.scheduler
	}
	_, c.scheduler = slicepatch.SchedulerOf(&lease, c.Clock.Now())
	return c.scheduler
}

// writeStatus writes the status of a patch if it differs. It writes an event if the patch
// is not in force as written, once for each reason.
func (c *Controller) writeStatus(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, m *patchState, wanted *v1alpha1.ResourceSlicePatchStatus) (time.Duration, error) {
	ready, warned := &wanted.Conditions[0], warning{}
	if ready.Status == metav1.ConditionFalse {
		warned = warning{versionOf(patch), ready.Reason}
	}
	if warned != m.warned && warned.reason != "" {
		reference := &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: kindPatch, Name: patch.Name, UID: patch.UID}
		c.Recorder.Eventf(reference, corev1.EventTypeWarning, ready.Reason, "%s", ready.Message)
		logr.FromContextOrDiscard(ctx).Info("a ResourceSlicePatch is not in force as written", "patch", patch.Name, "reason", ready.Reason, "message", ready.Message)
	}
	m.warned = warned

	stored := withOwnReady(&patch.Status)
	if equality.Semantic.DeepEqual(stored, wanted) {
		return recheck, nil
	}
	countsAlone := len(stored.Conditions) == 1 && stored.Conditions[0].Reason == ready.Reason &&
		stored.ObservedGeneration == wanted.ObservedGeneration && equality.Semantic.DeepEqual(stored.Taints, wanted.Taints)
	now := c.Local.Now()
	if wait := m.statusWrite.Add(countPause).Sub(now); wait > 0 && countsAlone {
		return wait, nil
	}
	m.statusWrite = now
	return recheck, c.applyStatus(ctx, patch, "", wanted)
}

// applyStatus applies a status, to the given resourceVersion if that is not empty.
func (c *Controller) applyStatus(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, version string, status *v1alpha1.ResourceSlicePatchStatus) error {
	if err := applyStatus(ctx, &c.Base, patch, version, status); err != nil {
		return err
	}
	logr.FromContextOrDiscard(ctx).V(1).Info("wrote status", "kind", kindPatch, "patch", patch.Name)
	return nil
}
