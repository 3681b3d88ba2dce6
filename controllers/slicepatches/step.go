package slicepatches

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
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
	// writesAtOnce is the number of rules that one step writes.
	writesAtOnce = 50
)

// step reconciles one patch.
func (c *Controller) step(ctx context.Context, name string) (time.Duration, error) {
	if !c.options.ViewSynced() || c.options.Known != nil && !c.options.KnownSynced() {
		return syncPause, nil
	}
	patch, m, err := c.read(ctx, name)
	if err == nil && patch != nil && m.isCounted(patch) {
		// A new version of a patch does not wait for the reports of others.
		c.pause(ctx)
		patch, m, err = c.read(ctx, name)
	}
	switch {
	case err != nil:
		return 0, err
	case patch == nil:
		c.forget(name)
		return c.removeRules(ctx, name)
	}
	report, ok := c.report(patch)
	if !ok {
		return viewPause, nil
	}
	m.countedUID, m.countedGeneration = patch.UID, patch.Generation
	return c.apply(ctx, patch, m, &report)
}

// read returns a patch and its state, nil if it does not exist.
func (c *Controller) read(ctx context.Context, name string) (*v1alpha1.ResourceSlicePatch, *patchState, error) {
	patch := &v1alpha1.ResourceSlicePatch{}
	err := c.options.Reader.Get(ctx, types.NamespacedName{Name: name}, patch)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read ResourceSlicePatch %s: %w", name, err)
	}
	return patch, c.stateOf(patch), nil
}

// isCounted reports whether the current version of the patch already had a report.
func (m *patchState) isCounted(patch *v1alpha1.ResourceSlicePatch) bool {
	return m.countedUID == patch.UID && m.countedGeneration == patch.Generation
}

// pause waits until restUntil or until ctx is done.
func (c *Controller) pause(ctx context.Context) {
	wait := c.restUntil.Sub(c.options.Local.Now())
	if wait <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-c.options.Local.After(wait):
	}
}

// report returns the devices that a patch selects; false if the view does not hold this
// version of it before and after: devices of another version must not get the taints of
// this one.
func (c *Controller) report(patch *v1alpha1.ResourceSlicePatch) (sliceview.Report, bool) {
	if !c.options.View.Holds(patch) {
		return sliceview.Report{}, false
	}
	naming := maxNamed
	if slicepatch.Conditional(patch.Spec.Devices.Filter) && len(patch.Spec.Devices.Taints) > 0 {
		naming = maxRules + 1
	}
	began := c.options.Local.Now()
	report, ok := c.options.View.Report(patch.Name, naming)
	ended := c.options.Local.Now()
	c.restUntil = ended.Add(min(share*ended.Sub(began), restMax))
	return report, ok && c.options.View.Holds(patch)
}

// apply records the times of taints in the status, then writes the rules, and then the
// rest of the status.
func (c *Controller) apply(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, m *patchState, report *sliceview.Report) (time.Duration, error) {
	now := c.options.Clock.Now()
	// An invalid patch has no times.
	var times []v1alpha1.PatchedTaint
	var taints []resourcev1.DeviceTaint
	if len(report.Problems) == 0 {
		times = taintTimes(patch, now)
		taints = datedTaints(patch, times)
	}
	if !equality.Semantic.DeepEqual(patch.Status.Taints, times) {
		patch.Status.Taints = times
		// The resourceVersion prevents that an old cache overwrites a recorded time.
		if err := c.applyStatus(ctx, patch, patch.ResourceVersion, withOwnReady(&patch.Status)); err != nil {
			return 0, err
		}
	}
	shortfalls := c.shortfalls(ctx, patch)
	found, reached, err := c.write(ctx, patch, m, taints, report)
	if err != nil {
		return 0, err
	}
	if reached == progressSettled {
		c.markWritten(patch, m)
	}
	wanted := statusOf(patch, report, times, append(shortfalls, found...))
	again, err := c.writeStatus(ctx, patch, m, &wanted)
	if wait, more := reached.again(); more {
		return wait, err
	}
	return again, err
}

// withOwnReady returns a copy of a status with only the condition Ready.
func withOwnReady(status *v1alpha1.ResourceSlicePatchStatus) *v1alpha1.ResourceSlicePatchStatus {
	own := *status
	own.Conditions = slices.DeleteFunc(slices.Clone(own.Conditions), func(c metav1.Condition) bool { return c.Type != v1alpha1.ConditionReady })
	return &own
}

// shortfalls returns the reasons, apart from taints, why a patch is not in force as
// written.
func (c *Controller) shortfalls(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) []shortfall {
	var shortfalls []shortfall
	if filter := patch.Spec.Devices.Filter; filter != nil && filter.DeviceClassName != nil {
		err := c.options.Reader.Get(ctx, types.NamespacedName{Name: *filter.DeviceClassName}, &resourcev1.DeviceClass{})
		if apierrors.IsNotFound(err) {
			shortfalls = append(shortfalls, shortfall{ReasonClassNotFound, fmt.Sprintf(
				"there is no DeviceClass %s, so that no device is selected", *filter.DeviceClassName)})
		}
	}
	attributed := len(patch.Spec.Devices.Attributes)+len(patch.Spec.Devices.Capacity) > 0
	switch {
	case attributed && c.options.AttributesGate != "":
		shortfalls = append(shortfalls, shortfall{ReasonDisabled, "attributes and capacity change nothing: the feature gate " + c.options.AttributesGate + " is off"})
	case attributed && !c.schedulerRuns(ctx):
		shortfalls = append(shortfalls, shortfall{ReasonNoScheduler, fmt.Sprintf(
			"attributes and capacity change nothing, because no scheduler that applies patches runs: nobody renews the Lease %s/%s; docs/scheduler.md says how to run one",
			slicepatch.PresenceNamespace, slicepatch.Name)})
	}
	if patch.Spec.Publish {
		shortfalls = append(shortfalls, shortfall{
			ReasonNotPublished,
			"spec.publish does nothing: nothing is written into ResourceSlices, because drivers take what is for their own; schedulers that apply patches see attributes and capacity",
		})
	}
	return shortfalls
}

// schedulerRuns reports whether a scheduler runs that applies patches. If the Lease cannot
// be read, it returns the last result.
func (c *Controller) schedulerRuns(ctx context.Context) bool {
	if now := c.options.Local.Now(); now.Before(c.nextLeaseRead) {
		return c.scheduler
	}
	c.nextLeaseRead = c.options.Local.Now().Add(presencePause)
	lease := &coordinationv1.Lease{}
	err := c.options.Live.Get(ctx, types.NamespacedName{Namespace: slicepatch.PresenceNamespace, Name: slicepatch.Name}, lease)
	if client.IgnoreNotFound(err) != nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("cannot see whether a scheduler applies patches", "reason", err.Error())
		return c.scheduler // the last result
	}
	if err != nil {
		lease = nil
	}
	_, c.scheduler = slicepatch.SchedulerOf(lease, c.options.Clock.Now())
	return c.scheduler
}

// writeStatus writes the status of a patch if it differs, and an event if it is not in
// force for a new reason.
func (c *Controller) writeStatus(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, m *patchState, wanted *v1alpha1.ResourceSlicePatchStatus) (time.Duration, error) {
	setTransitionTime(wanted, patch.Status.Conditions, metav1.NewTime(c.options.Clock.Now()))
	ready := &wanted.Conditions[0]
	c.recordEvent(ctx, patch, m, ready)
	if sameStatus(&patch.Status, wanted) {
		return recheck, nil
	}
	now := c.options.Local.Now()
	if wait := m.statusWrite.Add(countPause).Sub(now); wait > 0 && differsInCountsAlone(&patch.Status, wanted) {
		return wait, nil
	}
	m.statusWrite = now
	return recheck, c.applyStatus(ctx, patch, "", wanted)
}

// differsInCountsAlone reports whether two statuses have the same reason, generation and
// taints.
func differsInCountsAlone(stored, wanted *v1alpha1.ResourceSlicePatchStatus) bool {
	own := withOwnReady(stored)
	return len(own.Conditions) == 1 && own.Conditions[0].Reason == wanted.Conditions[0].Reason &&
		own.ObservedGeneration == wanted.ObservedGeneration && equality.Semantic.DeepEqual(own.Taints, wanted.Taints)
}

// applyStatus applies a status, to the given resourceVersion if that is not empty.
func (c *Controller) applyStatus(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, version string, status *v1alpha1.ResourceSlicePatchStatus) error {
	err := c.options.Status.Apply(ctx, patch.Name, patch.UID, version, status)
	if err != nil {
		return fmt.Errorf("write status of ResourceSlicePatch %s: %w", patch.Name, err)
	}
	logr.FromContextOrDiscard(ctx).V(1).Info("wrote status", "kind", kindPatch, "patch", patch.Name)
	return nil
}

// recordEvent records an event for a patch that is not in force as written, once for each
// reason.
func (c *Controller) recordEvent(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, m *patchState, ready *metav1.Condition) {
	reasons := ""
	if ready.Status == metav1.ConditionFalse {
		reasons = strings.Join([]string{string(patch.UID), strconv.FormatInt(patch.Generation, 10), ready.Reason}, " ")
	}
	if reasons == m.reasons {
		return
	}
	m.reasons = reasons
	if reasons == "" {
		return
	}
	c.options.Recorder.Eventf(referenceTo(patch), corev1.EventTypeWarning, ready.Reason, "%s", ready.Message)
	logr.FromContextOrDiscard(ctx).Info("a ResourceSlicePatch is not in force as written", "patch", patch.Name, "reason", ready.Reason, "message", ready.Message)
}
