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
	// syncPause is how long a patch waits while too little is known.
	syncPause = time.Second
	// viewPause is how long it waits for the view to take it in.
	viewPause = 50 * time.Millisecond
	// recheck is how often a patch is looked at unasked.
	recheck = time.Minute
	// countPause is the least time between two writes of a status that differ in the
	// counts and names of devices alone: drivers may publish every second.
	countPause = 5 * time.Second
	// presencePause is between two looks for a scheduler that applies patches.
	presencePause = 10 * time.Second
	// share is for how many times as long as a count took none is made, up to restMax:
	// many patches over many devices must not take all of a core.
	share   = 19
	restMax = 2 * time.Second
	// writesAtOnce is how many rules one step writes.
	writesAtOnce = 50
)

// step looks at one patch.
func (c *Controller) step(ctx context.Context, name string) (time.Duration, error) {
	if !c.options.ViewSynced() || c.options.Known != nil && !c.options.KnownSynced() {
		return syncPause, nil
	}
	patch, m, err := c.read(ctx, name)
	if err == nil && patch != nil && m.counted(patch) {
		// Somebody who has just written a patch does not wait for the counts of others.
		c.pause(ctx)
		patch, m, err = c.read(ctx, name)
	}
	switch {
	case err != nil:
		return 0, err
	case patch == nil:
		c.forget(name)
		return c.gone(ctx, name)
	}
	report, ok := c.report(patch)
	if !ok {
		return viewPause, nil
	}
	m.countedUID, m.countedGeneration = patch.UID, patch.Generation
	return c.carryOut(ctx, patch, m, &report)
}

// read returns a patch and what is remembered of it, nil if there is none.
func (c *Controller) read(ctx context.Context, name string) (*v1alpha1.ResourceSlicePatch, *memory, error) {
	patch := &v1alpha1.ResourceSlicePatch{}
	err := c.options.Reader.Get(ctx, types.NamespacedName{Name: name}, patch)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read ResourceSlicePatch %s: %w", name, err)
	}
	return patch, c.remember(patch), nil
}

// counted reports whether what a patch does was counted before, of the patch as it is.
func (m *memory) counted(patch *v1alpha1.ResourceSlicePatch) bool {
	return m.countedUID == patch.UID && m.countedGeneration == patch.Generation
}

// pause rests if it was costly to count other patches.
func (c *Controller) pause(ctx context.Context) {
	wait := c.rest.Sub(c.options.Local.Now())
	if wait <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-c.options.Local.After(wait):
	}
}

// report counts what a patch does; false means that the view does not hold it, or not any
// more: the devices of another version must not be given the taints of this one.
func (c *Controller) report(patch *v1alpha1.ResourceSlicePatch) (sliceview.Report, bool) {
	if !c.options.View.Holds(patch) {
		return sliceview.Report{}, false
	}
	naming := named
	if slicepatch.Conditional(patch.Spec.Devices.Filter) && len(patch.Spec.Devices.Taints) > 0 {
		naming = mostRules + 1
	}
	began := c.options.Local.Now()
	report, ok := c.options.View.Report(patch.Name, naming)
	ended := c.options.Local.Now()
	c.rest = ended.Add(min(share*ended.Sub(began), restMax))
	return report, ok && c.options.View.Holds(patch)
}

// carryOut records since when taints count, then writes their rules, and then says what
// has become of the patch.
func (c *Controller) carryOut(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, m *memory, report *sliceview.Report) (time.Duration, error) {
	now := c.options.Clock.Now()
	// What is not in force counts since no time.
	var times []v1alpha1.PatchedTaint
	var taints []resourcev1.DeviceTaint
	if len(report.Problems) == 0 {
		times = timesOf(patch, now)
		taints = datedTaints(patch, times)
	}
	if !equality.Semantic.DeepEqual(patch.Status.Taints, times) {
		patch.Status.Taints = times
		// By the version that was read, so that a time is not recorded twice by what is old.
		if err := c.apply(ctx, patch, patch.ResourceVersion, withOwnReady(&patch.Status)); err != nil {
			return 0, err
		}
	}
	lacks := c.lacks(ctx, patch)
	found, reached, err := c.write(ctx, patch, m, taints, report)
	if err != nil {
		return 0, err
	}
	if reached == settled {
		c.complete(patch, m)
	}
	wanted := statusOf(patch, report, times, append(lacks, found...))
	again, err := c.say(ctx, patch, m, &wanted)
	if wait, more := reached.again(); more {
		return wait, err
	}
	return again, err
}

// withOwnReady returns a status as it is, without the conditions of others.
func withOwnReady(status *v1alpha1.ResourceSlicePatchStatus) *v1alpha1.ResourceSlicePatchStatus {
	own := *status
	own.Conditions = slices.DeleteFunc(slices.Clone(own.Conditions), func(c metav1.Condition) bool { return c.Type != v1alpha1.ConditionReady })
	return &own
}

// lacks returns what keeps a patch from being in force that has nothing to do with its
// taints.
func (c *Controller) lacks(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) []shortfall {
	var lacks []shortfall
	if filter := patch.Spec.Devices.Filter; filter != nil && filter.DeviceClassName != nil {
		err := c.options.Reader.Get(ctx, types.NamespacedName{Name: *filter.DeviceClassName}, &resourcev1.DeviceClass{})
		if apierrors.IsNotFound(err) {
			lacks = append(lacks, shortfall{ReasonClassNotFound, fmt.Sprintf(
				"there is no DeviceClass %s, so that no device is selected", *filter.DeviceClassName)})
		}
	}
	attributed := len(patch.Spec.Devices.Attributes)+len(patch.Spec.Devices.Capacity) > 0
	switch {
	case attributed && c.options.AttributesGate != "":
		lacks = append(lacks, shortfall{ReasonDisabled, "attributes and capacity change nothing: the feature gate " + c.options.AttributesGate + " is off"})
	case attributed && !c.obeyed(ctx):
		lacks = append(lacks, shortfall{ReasonNoScheduler, fmt.Sprintf(
			"attributes and capacity change nothing, because no scheduler that applies patches runs: nobody renews the Lease %s/%s; docs/scheduler.md says how to run one",
			slicepatch.PresenceNamespace, slicepatch.Name)})
	}
	if patch.Spec.Publish {
		lacks = append(lacks, shortfall{
			ReasonNotPublished,
			"spec.publish does nothing: nothing is written into ResourceSlices, because drivers take what is for their own; schedulers that apply patches see attributes and capacity",
		})
	}
	return lacks
}

// obeyed reports whether a scheduler runs that applies patches. Where that cannot be asked
// it is not said that there is none.
func (c *Controller) obeyed(ctx context.Context) bool {
	if now := c.options.Local.Now(); now.Before(c.askAgain) {
		return c.scheduler
	}
	c.askAgain = c.options.Local.Now().Add(presencePause)
	lease := &coordinationv1.Lease{}
	err := c.options.Live.Get(ctx, types.NamespacedName{Namespace: slicepatch.PresenceNamespace, Name: slicepatch.Name}, lease)
	if client.IgnoreNotFound(err) != nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("cannot see whether a scheduler applies patches", "reason", err.Error())
		return c.scheduler // as was last seen
	}
	if err != nil {
		lease = nil
	}
	_, c.scheduler = slicepatch.SchedulerOf(lease, c.options.Clock.Now())
	return c.scheduler
}

// say writes the status of a patch where it differs, and an event when it is not in force
// for another reason than was last said.
func (c *Controller) say(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, m *memory, wanted *v1alpha1.ResourceSlicePatchStatus) (time.Duration, error) {
	date(wanted, patch.Status.Conditions, metav1.NewTime(c.options.Clock.Now()))
	ready := &wanted.Conditions[0]
	c.announce(ctx, patch, m, ready)
	if sameStatus(&patch.Status, wanted) {
		return recheck, nil
	}
	now := c.options.Local.Now()
	if wait := m.written.Add(countPause).Sub(now); wait > 0 && differsInCountsAlone(&patch.Status, wanted) {
		return wait, nil
	}
	m.written = now
	return recheck, c.apply(ctx, patch, "", wanted)
}

// differsInCountsAlone reports whether two statuses say the same of the patch as such.
func differsInCountsAlone(stored, wanted *v1alpha1.ResourceSlicePatchStatus) bool {
	own := withOwnReady(stored)
	return len(own.Conditions) == 1 && own.Conditions[0].Reason == wanted.Conditions[0].Reason &&
		own.ObservedGeneration == wanted.ObservedGeneration && equality.Semantic.DeepEqual(own.Taints, wanted.Taints)
}

// apply writes a status, of the version of the patch that is given, if one is.
func (c *Controller) apply(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, version string, status *v1alpha1.ResourceSlicePatchStatus) error {
	err := c.options.Status.Apply(ctx, patch.Name, patch.UID, version, status)
	if err != nil {
		return fmt.Errorf("write status of ResourceSlicePatch %s: %w", patch.Name, err)
	}
	logr.FromContextOrDiscard(ctx).V(1).Info("wrote status", "kind", kindPatch, "patch", patch.Name)
	return nil
}

// announce tells of a patch that is not in force as written.
func (c *Controller) announce(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, m *memory, ready *metav1.Condition) {
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
