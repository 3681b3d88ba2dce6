package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// heldPause is the delay between two attempts, and so the minimum between two writes
	// of one status.
	heldPause = 2 * time.Second
	// maxHolding is the number of objects that a status names.
	maxHolding = 16
)

// HeldOptions configures a HeldController. All fields are required.
type HeldOptions struct {
	// Held returns the held pods. It is complete once Settled reports that all pods have
	// been evaluated in this term of leadership.
	Held    func() []evictor.Held
	Settled func() bool
	// Evictions returns the EvictionPolicies in force.
	Evictions func() *eviction.Set
}

// HeldController writes into the status of EvictionPolicies which pods they hold.
type HeldController struct {
	*controller.Controller[string]
	HeldOptions
}

// allPolicies is the only key of the queue.
const allPolicies = "all EvictionPolicies"

// NewHeld returns a controller; Start starts it. The cache of base holds EvictionPolicies.
func NewHeld(base controller.Base, options HeldOptions) *HeldController {
	c := &HeldController{HeldOptions: options}
	c.Controller = controller.New(base, controller.Options[string]{
		Name: "tollgate-evictions", Started: func() { c.Add(allPolicies) }, Reconcile: c.reconcile,
	})
	return c
}

// reconcile writes the statuses of all policies. A failed write does not stop the others;
// the next attempt tries it again.
func (c *HeldController) reconcile(ctx context.Context, _ string) (time.Duration, error) {
	if !c.Settled() {
		return heldPause, nil
	}
	heldPods := heldByPolicy(c.Held())
	for _, policy := range c.Evictions().All() {
		var object v1alpha1.EvictionPolicy
		err := c.Cache.Get(ctx, types.NamespacedName{Name: policy.Name}, &object)
		before := object.DeepCopy()
		if err == nil && object.UID == policy.UID {
			updateStatus(&object, heldPods[policy.UID], metav1.NewTime(c.Clock.Now()))
			if !equality.Semantic.DeepEqual(before.Status, object.Status) {
				err = c.WriteStatus(ctx, "status of EvictionPolicy", &object, controller.ChangesTo(before))
			}
		}
		if client.IgnoreNotFound(err) != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("cannot write what is held yet", "policy", policy.Name, "reason", err.Error())
		}
	}
	return heldPause, nil
}

// heldPods counts the pods that one policy holds.
type heldPods struct {
	pods int
	// byReason counts pods by the reason of the hold, and carriers by the object with the
	// taint.
	byReason map[checks.Reason]int
	carriers map[tracker.Source]int
}

// heldByPolicy returns the held pods by the UID of the policy. It omits pods with a hold
// that no policy sets.
func heldByPolicy(list []evictor.Held) map[types.UID]*heldPods {
	byPolicy := map[types.UID]*heldPods{}
	for i := range list {
		in := &list[i]
		if in.Policy == "" || !slices.ContainsFunc(holds, func(h hold) bool { return h.reason == in.Reason }) {
			continue
		}
		h := byPolicy[in.Policy]
		if h == nil {
			h = &heldPods{byReason: map[checks.Reason]int{}, carriers: map[tracker.Source]int{}}
			byPolicy[in.Policy] = h
		}
		h.pods++
		h.byReason[in.Reason]++
		h.carriers[in.Carrier.Named()]++
	}
	return byPolicy
}

// updateStatus sets the held pods in a status, nil for none. The condition Held has the reason
// of the most important hold.
func updateStatus(policy *v1alpha1.EvictionPolicy, h *heldPods, now metav1.Time) {
	if h == nil {
		h = &heldPods{}
	}
	policy.Status.Held = int32(min(h.pods, 1<<31-1)) //nolint:gosec // It is bounded.
	// The carriers with the most pods are the first.
	var holding []v1alpha1.HeldEvictions
	for c, pods := range h.carriers {
		holding = append(holding, v1alpha1.HeldEvictions{
			Kind: c.Kind.Object(), Name: c.Name, Pods: int32(min(pods, 1<<31-1)), //nolint:gosec // It is bounded.
		})
	}
	slices.SortFunc(holding, func(a, b v1alpha1.HeldEvictions) int {
		return cmp.Or(cmp.Compare(b.Pods, a.Pods), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	policy.Status.Holding = slices.Clip(holding[:min(len(holding), maxHolding)])
	if h.pods > 0 || meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionHeld) != nil {
		condition := metav1.Condition{
			Type: v1alpha1.ConditionHeld, Status: metav1.ConditionFalse, Reason: "NothingHeld", Message: "No pod is held by this policy.",
			ObservedGeneration: policy.Generation, LastTransitionTime: now,
		}
		var parts []string
		for _, hold := range holds {
			if n := h.byReason[hold.reason]; n > 0 {
				if len(parts) == 0 {
					condition.Status, condition.Reason = metav1.ConditionTrue, hold.conditionReason
				}
				parts = append(parts, fmt.Sprintf(hold.text, n))
				condition.Message = strings.Join(parts, " ")
			}
		}
		meta.SetStatusCondition(&policy.Status.Conditions, condition)
	}
}

// hold is a hold that policies set: its condition reason, and its part of the message.
type hold struct {
	reason                checks.Reason
	conditionReason, text string
}

// holds are the holds that policies set, the most important first.
var holds = []hold{
	{
		checks.BreakerTripped, "BreakerTripped",
		"Pods held by the breaker: %d. They go when an EvictionApproval for the policy, or for the node, DeviceTaintRule or ResourceSlicePatch, lets them, when all of them fit into the limit, or when the limit is raised.",
	},
	{checks.Paused, "Paused", "Pods held because the policy is paused: %d. They go when paused is false."},
	{checks.Protected, "Protected", "Pods protected by the policy: %d. They stay as long as protect names them."},
}
