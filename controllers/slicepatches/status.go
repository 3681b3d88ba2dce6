package slicepatches

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/tracker/device"
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
	// maxNamed is the number of devices of each list that the status names.
	maxNamed = 8
	// maxMessage caps the message of Ready, in bytes.
	maxMessage = 1024
	// maxProblems caps the problems of a spec in the message.
	maxProblems = 3
)

// shortfall is one way in which a patch is not in force as written.
type shortfall struct{ reason, message string }

// statusOf returns the status of a patch, with only the condition Ready.
func statusOf(patch *v1alpha1.ResourceSlicePatch, report *sliceview.Report, times []v1alpha1.PatchedTaint, shortfalls []shortfall) v1alpha1.ResourceSlicePatchStatus {
	status := v1alpha1.ResourceSlicePatchStatus{
		ObservedGeneration: patch.Generation,
		DevicesMatched:     count(report.Matched),
		DevicesFailed:      count(report.Failed),
		DevicesLimited:     count(report.Limited),
		Failed:             problems(report.FirstFailed),
		Limited:            problems(report.FirstLimited),
		Taints:             times,
	}
	for _, id := range report.FirstMatched[:min(maxNamed, len(report.FirstMatched))] {
		status.Matched = append(status.Matched, deviceString(id))
	}
	status.Conditions = []metav1.Condition{ready(patch, report, shortfalls)}
	return status
}

func count(n int) int32 { return int32(min(n, math.MaxInt32)) } //nolint:gosec // It is bounded.

// deviceString returns a device in the form of the status.
func deviceString(id device.ID) string { return id.Driver + "/" + id.Pool + "/" + id.Name }

func problems(list []sliceview.Problem) []v1alpha1.DevicePatchProblem {
	list = list[:min(maxNamed, len(list))]
	texts := make([]v1alpha1.DevicePatchProblem, 0, len(list))
	for _, p := range list {
		texts = append(texts, v1alpha1.DevicePatchProblem{Device: deviceString(p.Device), Message: policy.Short(p.Message, maxMessage)})
	}
	return texts
}

// ready returns the condition Ready, without lastTransitionTime.
func ready(patch *v1alpha1.ResourceSlicePatch, report *sliceview.Report, shortfalls []shortfall) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonInForce,
		Message: selectedText(report.Matched), ObservedGeneration: patch.Generation,
	}
	shortfalls = append(reportShortfalls(report), shortfalls...)
	if len(shortfalls) == 0 {
		return c
	}
	messages := make([]string, 0, len(shortfalls))
	for _, missing := range shortfalls {
		messages = append(messages, missing.message)
	}
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, shortfalls[0].reason, policy.Short(strings.Join(messages, "; "), maxMessage)
	return c
}

func selectedText(devices int) string {
	switch devices {
	case 0:
		return "No device is selected."
	case 1:
		return "1 device is selected."
	default:
		return fmt.Sprintf("%d devices are selected.", devices)
	}
}

// reportShortfalls returns the shortfalls of the report of a patch.
func reportShortfalls(report *sliceview.Report) []shortfall {
	var shortfalls []shortfall
	if n := len(report.Problems); n > 0 {
		texts := make([]string, 0, maxProblems+1)
		for _, problem := range report.Problems[:min(n, maxProblems)] {
			texts = append(texts, problem.Error())
		}
		if n > maxProblems {
			texts = append(texts, fmt.Sprintf("and %d more", n-maxProblems))
		}
		shortfalls = append(shortfalls, shortfall{ReasonInvalid, "no part of the patch is in force: " + strings.Join(texts, "; ")})
	}
	if report.Failed > 0 {
		shortfalls = append(shortfalls, shortfall{ReasonExpressionFailed, failureMessage(report)})
	}
	if report.Limited > 0 {
		first := report.FirstLimited[0]
		shortfalls = append(shortfalls, shortfall{ReasonDevicesLimited, fmt.Sprintf(
			"%s their attributes and capacity, the first is %s: %s", keepText(report.Limited), deviceString(first.Device), first.Message)})
	}
	return shortfalls
}

// failureMessage describes the devices on which an expression failed.
func failureMessage(report *sliceview.Report) string {
	first := report.FirstFailed[0]
	return fmt.Sprintf("an expression failed on %s, which the patch leaves alone, the first is %s: %s",
		devices(report.Failed), deviceString(first.Device), first.Message)
}

func keepText(n int) string {
	if n == 1 {
		return "1 device keeps"
	}
	return fmt.Sprintf("%d devices keep", n)
}

func devices(n int) string {
	if n == 1 {
		return "1 device"
	}
	return fmt.Sprintf("%d devices", n)
}

// setTransitionTime sets lastTransitionTime of the condition Ready: the previous one if
// the status of the condition is unchanged.
func setTransitionTime(status *v1alpha1.ResourceSlicePatchStatus, before []metav1.Condition, now metav1.Time) {
	ready := &status.Conditions[0]
	ready.LastTransitionTime = now
	if stored := meta.FindStatusCondition(before, ready.Type); stored != nil && stored.Status == ready.Status {
		ready.LastTransitionTime = stored.LastTransitionTime
	}
}

// sameStatus reports whether the stored status is the wanted one. It ignores the
// conditions of other writers.
func sameStatus(stored, wanted *v1alpha1.ResourceSlicePatchStatus) bool {
	own := *stored
	own.Conditions = nil
	if ready := meta.FindStatusCondition(stored.Conditions, v1alpha1.ConditionReady); ready != nil {
		own.Conditions = []metav1.Condition{*ready}
	}
	return equality.Semantic.DeepEqual(own, *wanted)
}
