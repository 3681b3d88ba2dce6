package handlers

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// approval is one for a taint of node n1.
func approval(name string, maxPods int32, change func(*v1alpha1.EvictionApproval)) v1alpha1.EvictionApproval {
	a := v1alpha1.EvictionApproval{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(noon.Truncate(time.Second))},
		Spec: v1alpha1.EvictionApprovalSpec{
			Node: "n1", Taint: v1alpha1.ApprovedTaint{Key: "example.com/broken", Effect: corev1.TaintEffectNoExecute}, MaxPods: maxPods,
			ExpiresAfter: metav1.Duration{Duration: time.Hour},
		},
	}
	if change != nil {
		change(&a)
	}
	return a
}

func TestApprovals(t *testing.T) {
	for name, tt := range map[string]struct {
		approvals []v1alpha1.EvictionApproval
		by        string
	}{
		"one that is enough":       {[]v1alpha1.EvictionApproval{approval("a", 12, nil)}, "a"},
		"one that is not enough":   {[]v1alpha1.EvictionApproval{approval("a", 11, nil)}, ""},
		"the smallest that is":     {[]v1alpha1.EvictionApproval{approval("a", 100, nil), approval("b", 12, nil), approval("c", 3, nil)}, "b"},
		"the first of equal ones":  {[]v1alpha1.EvictionApproval{approval("b", 12, nil), approval("a", 12, nil)}, "a"},
		"one that was used":        {[]v1alpha1.EvictionApproval{approval("a", 12, func(a *v1alpha1.EvictionApproval) { a.Status.UsedAt = new(metav1.NewTime(noon)) })}, ""},
		"one that is going":        {[]v1alpha1.EvictionApproval{approval("a", 12, func(a *v1alpha1.EvictionApproval) { a.DeletionTimestamp = new(metav1.NewTime(noon)) })}, ""},
		"one of another node":      {[]v1alpha1.EvictionApproval{approval("a", 12, func(a *v1alpha1.EvictionApproval) { a.Spec.Node = "n2" })}, ""},
		"one of a rule":            {[]v1alpha1.EvictionApproval{approval("a", 12, func(a *v1alpha1.EvictionApproval) { a.Spec.Node, a.Spec.DeviceTaintRule = "", "n1" })}, ""},
		"one of another key":       {[]v1alpha1.EvictionApproval{approval("a", 12, func(a *v1alpha1.EvictionApproval) { a.Spec.Taint.Key = "example.com/x" })}, ""},
		"one that has expired":     {[]v1alpha1.EvictionApproval{approval("a", 12, func(a *v1alpha1.EvictionApproval) { a.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour)) })}, ""},
		"one that expires soon":    {[]v1alpha1.EvictionApproval{approval("a", 12, func(a *v1alpha1.EvictionApproval) { a.CreationTimestamp = metav1.NewTime(noon.Add(-59 * time.Minute)) })}, "a"},
		"one without an expiry":    {[]v1alpha1.EvictionApproval{approval("a", 12, func(a *v1alpha1.EvictionApproval) { a.Spec.ExpiresAfter.Duration = 0 })}, "a"},
		"one that would be of use": {[]v1alpha1.EvictionApproval{approval("a", 12, func(a *v1alpha1.EvictionApproval) { a.Spec.ExpiresAfter.Duration = -1 })}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))}))
			b.node("n1", 12)
			b.approvals.list = tt.approvals
			dry := b.taints(t, "n1", true, b.taintNow("example.com/broken"))
			response := b.taints(t, "n1", false, b.taintNow("example.com/broken"))
			require.Equal(t, dry.Allowed, response.Allowed)
			if tt.by == "" {
				requireReason(t, "TooManyAffected", response)
				return
			}
			requireReason(t, "", response)
			require.Equal(t, []string{
				"evicts 12 pods in 1 namespace: 12 now", "beyond the limit of TaintPolicy/limits, as approved by EvictionApproval/" + tt.by,
			}, response.Warnings)
		})
	}

	t.Run("what is approved for one taint does not approve another that comes with it", func(t *testing.T) {
		b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))}))
		b.node("n1", 12)
		b.approvals.list = []v1alpha1.EvictionApproval{approval("a", 12, nil)}
		both := []corev1.Taint{b.taintNow("example.com/broken"), b.taintNow("example.com/x")}
		requireReason(t, "TooManyAffected", b.taints(t, "n1", false, both...))
		b.approvals.list = append(b.approvals.list, approval("x", 12, func(a *v1alpha1.EvictionApproval) { a.Spec.Taint.Key = "example.com/x" }))
		require.Contains(t, b.taints(t, "n1", false, both...).Warnings, "beyond the limit of TaintPolicy/limits, as approved by EvictionApproval/a and EvictionApproval/x")
	})

	t.Run("an approval is used when its taint stands, although its status does not say so", func(t *testing.T) {
		b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(1))}))
		for i := range 5 {
			b.user("u"+strconv.Itoa(i), "x"+strconv.Itoa(i%2))
		}
		b.approvals.list = []v1alpha1.EvictionApproval{approval("a", 10, func(a *v1alpha1.EvictionApproval) {
			a.Spec.Node, a.Spec.DeviceTaintRule, a.Spec.Taint.Key = "", "r", "example.com/broken"
		})}
		narrow, wide := ruleJSON(`{"device":"x0"}`, "example.com/broken", "NoExecute"), ruleJSON(`{}`, "example.com/broken", "NoExecute")
		requireReason(t, "", b.rule(t, narrow, ""))
		var stored resourcev1.DeviceTaintRule
		require.NoError(t, json.Unmarshal([]byte(narrow), &stored))
		stored.CreationTimestamp = metav1.NewTime(noon)
		b.tracker.SetRule(tracker.RuleOf(&stored), noon)
		response := b.rule(t, wide, narrow)
		requireReason(t, "TooManyAffected", response)
		require.Contains(t, response.Result.Message, "hits 2 pods; at most 1 are allowed")
		require.Contains(t, response.Result.Message, "{deviceTaintRule: r, taint: {key: example.com/broken, effect: NoExecute}, maxPods: 2}")
	})

	t.Run("approvals that cannot be read are a fault, and the write is not in the way", func(t *testing.T) {
		b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))}))
		b.node("n1", 12)
		b.node("n2", 10)
		b.approvals.err = errors.New("not read")
		_, err := b.tryTaints(t, "n1", false, b.taintNow("example.com/broken"))
		require.ErrorIs(t, err, b.approvals.err)
		require.True(t, b.taints(t, "n2", false, b.taintNow("example.com/broken")).Allowed)
	})
}

func TestAnApprovedDrainDoesNotFillTheLimitOfOthers(t *testing.T) {
	b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))}))
	b.node("n1", 300)
	b.node("n2", 10)
	b.node("n3", 1)
	b.approvals.list = []v1alpha1.EvictionApproval{approval("a", 300, nil)}
	drain := b.taintNow("example.com/broken")
	require.True(t, b.taints(t, "n1", false, drain).Allowed)
	require.True(t, b.taints(t, "n2", true, drain).Allowed, "before it is seen")
	b.tracker.SetNode(tracker.Node{Name: "n1", UID: "n1", Taints: []corev1.Taint{drain}}, b.clock.Now())
	b.approvals.list[0].Status.UsedAt = new(metav1.NewTime(noon))
	for i := range 300 {
		b.ledger.Leaving(podOn("n1", i).Key)
		b.tracker.DeletePod(podOn("n1", i).Key)
	}
	b.clock.SetTime(noon.Add(time.Minute))
	require.True(t, b.taints(t, "n2", false, b.taintNow("example.com/broken")).Allowed, "after it, and the pods are gone")
	response := b.taints(t, "n3", false, b.taintNow("example.com/broken"))
	requireReason(t, "TooManyAffected", response)
	require.Contains(t, response.Result.Message, "hits 1 pod, 11 together with the 10 that other writes of the last 10m hit; at most 10 are allowed")
}

func TestAnApprovalIsUsedOnceInTheMomentBeforeItIsSeen(t *testing.T) {
	b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(1))}))
	for i := range 5 {
		b.user("u"+strconv.Itoa(i), "x"+strconv.Itoa(i%2))
	}
	b.approvals.list = []v1alpha1.EvictionApproval{approval("a", 10, func(a *v1alpha1.EvictionApproval) {
		a.Spec.Node, a.Spec.DeviceTaintRule, a.Spec.Taint.Key = "", "r", "example.com/broken"
	})}
	narrow, wide := ruleJSON(`{"device":"x0"}`, "example.com/broken", "NoExecute"), ruleJSON(`{}`, "example.com/broken", "NoExecute")
	requireReason(t, "", b.rule(t, narrow, ""))
	requireReason(t, "", b.rule(t, narrow, ""))
	requireReason(t, "TooManyAffected", b.rule(t, wide, narrow))
}

func TestAnApprovalIsNotUsedByARuleThatStoodBeforeWithATimeAhead(t *testing.T) {
	b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(1))}))
	for i := range 3 {
		b.user("u"+strconv.Itoa(i), "x0")
	}
	ahead := strings.Replace(ruleJSON(`{"device":"x1"}`, "example.com/broken", "NoExecute"),
		"2026-11-20T12:00:00Z", "2026-11-20T18:00:00Z", 1)
	var stored resourcev1.DeviceTaintRule
	require.NoError(t, json.Unmarshal([]byte(ahead), &stored))
	require.NotNil(t, stored.Spec.Taint.TimeAdded)
	b.tracker.SetRule(tracker.RuleOf(&stored), noon.Add(-time.Hour))
	b.approvals.list = []v1alpha1.EvictionApproval{approval("a", 3, func(a *v1alpha1.EvictionApproval) {
		a.Spec.Node, a.Spec.DeviceTaintRule = "", "r"
	})}
	wider := strings.Replace(ahead, `"device":"x1"`, `"device":"x0"`, 1)
	requireReason(t, "", b.rule(t, wider, ahead))
}
