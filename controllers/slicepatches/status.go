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

// The reasons of the condition Ready. All but InForce go with False.
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
	// named is how many devices of each kind the status names.
	named = 8
	// maxMessage bounds the message of Ready, in bytes.
	maxMessage = 1024
	// maxProblems bounds how many problems of a spec it tells of.
	maxProblems = 3
)

// shortfall is one way in which a patch is not in force as written.
type shortfall struct{ reason, message string }

// statusOf returns the status of a patch, with the conditions that are the controller's
// own.
func statusOf(patch *v1alpha1.ResourceSlicePatch, report *sliceview.Report, times []v1alpha1.PatchedTaint, lacks []shortfall) v1alpha1.ResourceSlicePatchStatus {
	status := v1alpha1.ResourceSlicePatchStatus{
		ObservedGeneration: patch.Generation,
		DevicesMatched:     count(report.Matched),
		DevicesFailed:      count(report.Failed),
		DevicesLimited:     count(report.Limited),
		Failed:             problems(report.FirstFailed),
		Limited:            problems(report.FirstLimited),
		Taints:             times,
	}
	for _, id := range report.FirstMatched[:min(named, len(report.FirstMatched))] {
		status.Matched = append(status.Matched, written(id))
	}
	status.Conditions = []metav1.Condition{ready(patch, report, lacks)}
	return status
}

func count(n int) int32 { return int32(min(n, math.MaxInt32)) } //nolint:gosec // It is bounded.

// written is how a device is written in the status.
func written(id device.ID) string { return id.Driver + "/" + id.Pool + "/" + id.Name }

func problems(list []sliceview.Problem) []v1alpha1.DevicePatchProblem {
	list = list[:min(named, len(list))]
	said := make([]v1alpha1.DevicePatchProblem, 0, len(list))
	for _, p := range list {
		said = append(said, v1alpha1.DevicePatchProblem{Device: written(p.Device), Message: policy.Short(p.Message, maxMessage)})
	}
	return said
}

// ready returns the condition Ready, undated.
func ready(patch *v1alpha1.ResourceSlicePatch, report *sliceview.Report, lacks []shortfall) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonInForce,
		Message: selected(report.Matched), ObservedGeneration: patch.Generation,
	}
	lacks = append(ofReport(report), lacks...)
	if len(lacks) == 0 {
		return c
	}
	messages := make([]string, 0, len(lacks))
	for _, lack := range lacks {
		messages = append(messages, lack.message)
	}
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, lacks[0].reason, policy.Short(strings.Join(messages, "; "), maxMessage)
	return c
}

func selected(devices int) string {
	switch devices {
	case 0:
		return "No device is selected."
	case 1:
		return "1 device is selected."
	default:
		return fmt.Sprintf("%d devices are selected.", devices)
	}
}

// ofReport returns what is wrong by what a patch does to devices.
func ofReport(report *sliceview.Report) []shortfall {
	var lacks []shortfall
	if n := len(report.Problems); n > 0 {
		said := make([]string, 0, maxProblems+1)
		for _, problem := range report.Problems[:min(n, maxProblems)] {
			said = append(said, problem.Error())
		}
		if n > maxProblems {
			said = append(said, fmt.Sprintf("and %d more", n-maxProblems))
		}
		lacks = append(lacks, shortfall{ReasonInvalid, "no part of the patch is in force: " + strings.Join(said, "; ")})
	}
	if report.Failed > 0 {
		lacks = append(lacks, shortfall{ReasonExpressionFailed, failed(report)})
	}
	if report.Limited > 0 {
		first := report.FirstLimited[0]
		lacks = append(lacks, shortfall{ReasonDevicesLimited, fmt.Sprintf(
			"%s their attributes and capacity, the first is %s: %s", keep(report.Limited), written(first.Device), first.Message)})
	}
	return lacks
}

// failed tells of the devices on which an expression failed.
func failed(report *sliceview.Report) string {
	first := report.FirstFailed[0]
	return fmt.Sprintf("an expression failed on %s, which the patch leaves alone, the first is %s: %s",
		devices(report.Failed), written(first.Device), first.Message)
}

func keep(n int) string {
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

// date gives the condition Ready of a status its time: that of the one before if it says
// the same.
func date(status *v1alpha1.ResourceSlicePatchStatus, before []metav1.Condition, now metav1.Time) {
	ready := &status.Conditions[0]
	ready.LastTransitionTime = now
	if stored := meta.FindStatusCondition(before, ready.Type); stored != nil && stored.Status == ready.Status {
		ready.LastTransitionTime = stored.LastTransitionTime
	}
}

// sameStatus reports whether a patch says in its status what it is to say. Conditions of
// others are left out.
func sameStatus(stored, wanted *v1alpha1.ResourceSlicePatchStatus) bool {
	own := *stored
	own.Conditions = nil
	if ready := meta.FindStatusCondition(stored.Conditions, v1alpha1.ConditionReady); ready != nil {
		own.Conditions = []metav1.Condition{*ready}
	}
	return equality.Semantic.DeepEqual(own, *wanted)
}
