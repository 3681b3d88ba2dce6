package slicepatches

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// The reasons of the condition Ready. All but InForce have the status False.
const (
	ReasonInForce          = "InForce"
	ReasonInvalid          = "Invalid"
	ReasonClassNotFound    = "DeviceClassNotFound"
	ReasonExpressionFailed = "ExpressionFailed"
	ReasonDevicesLimited   = "DevicesLimited"
	ReasonNoScheduler      = "NoScheduler"
	ReasonDisabled         = "Disabled"
	ReasonNotPublished     = "NotPublished"
	ReasonRulesNotServed   = "RulesNotServed"
	ReasonRuleExists       = "RuleExists"
	ReasonTooManyDevices   = "TooManyDevices"
	ReasonRulesRefused     = "RulesRefused"
)

const (
	// fieldManager owns the status except the conditions about evictions, which have
	// another owner.
	fieldManager = "tollgate-patches"
	// maxNamed is the number of devices of each list that the status names.
	maxNamed = 8
	// maxMessage caps the message of Ready, in bytes.
	maxMessage = 1024
	// maxProblems caps the problems of a spec in the message.
	maxProblems = 3
)

// shortfall is one way in which a patch is not in force as written.
type shortfall struct{ reason, message string }

// shortfalls are the ways in which a patch is not in force as written, the most important
// first, with one for each reason.
type shortfalls []shortfall

// add adds a shortfall, unless there is one with the reason.
func (s *shortfalls) add(reason, format string, args ...any) {
	if !slices.ContainsFunc(*s, func(have shortfall) bool { return have.reason == reason }) {
		*s = append(*s, shortfall{reason, fmt.Sprintf(format, args...)})
	}
}

// statusOf returns the status of a patch, with only the condition Ready.
func statusOf(patch *v1alpha1.ResourceSlicePatch, report *sliceview.Report, times []v1alpha1.PatchedTaint, missing shortfalls, now time.Time) v1alpha1.ResourceSlicePatchStatus {
	status := v1alpha1.ResourceSlicePatchStatus{
		ObservedGeneration: patch.Generation,
		DevicesMatched:     count(report.Matched),
		DevicesFailed:      count(report.Failed),
		DevicesLimited:     count(report.Limited),
		Failed:             problems(report.FirstFailed),
		Limited:            problems(report.FirstLimited),
		Taints:             times,
		Conditions:         withOwnReady(&patch.Status).Conditions,
	}
	for _, id := range report.FirstMatched[:min(maxNamed, len(report.FirstMatched))] {
		status.Matched = append(status.Matched, id.String())
	}
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonInForce,
		Message: devices(report.Matched, " is selected.", " are selected."), ObservedGeneration: patch.Generation,
		LastTransitionTime: metav1.NewTime(now),
	}
	if report.Matched == 0 {
		ready.Message = "No device is selected."
	}
	if len(missing) > 0 {
		messages := make([]string, 0, len(missing))
		for _, shortfall := range missing {
			messages = append(messages, shortfall.message)
		}
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, missing[0].reason, policy.Short(strings.Join(messages, "; "), maxMessage)
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	return status
}

func count(n int) int32 { return int32(min(n, math.MaxInt32)) } //nolint:gosec // It is bounded.

func problems(list []sliceview.Problem) []v1alpha1.DevicePatchProblem {
	list = list[:min(maxNamed, len(list))]
	texts := make([]v1alpha1.DevicePatchProblem, 0, len(list))
	for _, p := range list {
		texts = append(texts, v1alpha1.DevicePatchProblem{Device: p.Device.String(), Message: policy.Short(p.Message, maxMessage)})
	}
	return texts
}

// reportShortfalls returns the shortfalls of the report of a patch.
func reportShortfalls(report *sliceview.Report) (missing shortfalls) {
	if n := len(report.Problems); n > 0 {
		texts := make([]string, 0, maxProblems+1)
		for _, problem := range report.Problems[:min(n, maxProblems)] {
			texts = append(texts, problem.Error())
		}
		if n > maxProblems {
			texts = append(texts, fmt.Sprintf("and %d more", n-maxProblems))
		}
		missing.add(ReasonInvalid, "no part of the patch is in force: %s", strings.Join(texts, "; "))
	}
	if report.Failed > 0 {
		first := report.FirstFailed[0]
		missing.add(ReasonExpressionFailed, "an expression failed on %s, which the patch leaves alone, the first is %s: %s",
			devices(report.Failed, "", ""), first.Device, first.Message)
	}
	if report.Limited > 0 {
		first := report.FirstLimited[0]
		missing.add(ReasonDevicesLimited, "%s their attributes and capacity, the first is %s: %s",
			devices(report.Limited, " keeps", " keep"), first.Device, first.Message)
	}
	return missing
}

// devices returns a number of devices as text, with the verb for one or for several.
func devices(n int, one, several string) string {
	if n == 1 {
		return "1 device" + one
	}
	return fmt.Sprintf("%d devices%s", n, several)
}

// withOwnReady returns a copy of a status with only the condition Ready: the others have
// other writers.
func withOwnReady(status *v1alpha1.ResourceSlicePatchStatus) *v1alpha1.ResourceSlicePatchStatus {
	own := *status
	own.Conditions = slices.DeleteFunc(slices.Clone(own.Conditions), func(c metav1.Condition) bool { return c.Type != v1alpha1.ConditionReady })
	return &own
}

// datedTaints returns the taints of a patch with their times, and in times those without
// timeAdded, which have the time that the status records, or now.
func datedTaints(patch *v1alpha1.ResourceSlicePatch, now time.Time) (times []v1alpha1.PatchedTaint, dated []resourcev1.DeviceTaint) {
	for _, taint := range patch.Spec.Devices.Taints {
		if taint.TimeAdded.IsZero() {
			taint.TimeAdded = cmp.Or(slicepatch.Since(patch, &taint), new(metav1.NewTime(now.Truncate(time.Second))))
			times = append(times, taint)
		}
		// Rules store whole seconds, while patches keep fractions.
		taint.TimeAdded = new(metav1.NewTime(taint.TimeAdded.Truncate(time.Second)))
		dated = append(dated, resourcev1.DeviceTaint(taint))
	}
	return times, dated
}

// applyStatus writes the status of a patch by server-side apply, to the given
// resourceVersion if that is not empty: a later write makes it fail with a conflict. Fields
// that it applied before and omits now are removed, and it takes over fields of other
// managers. The UID makes the request fail for a recreated patch.
func applyStatus(ctx context.Context, base *controller.Base, patch *v1alpha1.ResourceSlicePatch, version string, status *v1alpha1.ResourceSlicePatchStatus) error {
	metadata := map[string]any{"name": patch.Name, "uid": patch.UID}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kindPatch, "metadata": metadata, "status": status,
	})
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	object := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: patch.Name}}
	return base.WriteStatus(ctx, "status of "+kindPatch, object, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner(fieldManager), client.ForceOwnership)
}
