package status

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/breaker"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// openPause is the delay between two attempts for an open approval: the taint of a
	// node may reach the tracker after the event that queues the approval.
	openPause = 5 * time.Second
	// countPause is the delay between two counts of the pods that left.
	countPause = 10 * time.Second
	// countFor is how long after its use the pods of an approval are counted.
	countFor = 24 * time.Hour
)

// Reasons of the condition Ready of approvals.
const (
	reasonOpen    = "Open"
	reasonUsed    = "Used"
	reasonExpired = "Expired"
)

// NewMetrics registers the counter of used approvals with reg. Its label is a closed set: the
// kinds of tracker.Source, and evictionpolicy.
func NewMetrics(reg prometheus.Registerer) *prometheus.CounterVec {
	return controller.NewCounter(reg, "tollgate_eviction_approvals_used_total",
		"EvictionApprovals that were used for a write beyond a limit of a TaintPolicy, or for pods that a breaker released, by the kind of the approved object. Only the leader counts them.", "source")
}

// ApprovalOptions configures an ApprovalController. Metrics is required.
type ApprovalOptions struct {
	// Standing returns the NoExecute taint with a key of a node or a rule, or the first and
	// the last one of the rules of a patch, of which the last counts. It is nil where taints are not watched; then no use of an
	// approval for a taint is seen. The component that watches rules must call
	// RuleChanged, and PatchesChanged for their patches.
	Standing func(source tracker.Source, key string) (first, last tracker.Taint, ok bool)
	// Left returns the number of pods that left because of a taint with a key on an object
	// since a time; nil where evictions are not watched.
	Left    func(source tracker.Source, key string, since time.Time) int
	Metrics *prometheus.CounterVec
}

// ApprovalController writes the status of approvals. Its cache holds approvals, and nodes
// with their metadata.
type ApprovalController struct {
	*controller.Controller[string]
	ApprovalOptions

	mu sync.Mutex
	// states are by the name of the approval. Only the single worker uses their contents
	// below spec.
	states map[string]*approvalState
}

// approvalState is the state of an approval between attempts.
type approvalState struct {
	uid  types.UID
	spec v1alpha1.EvictionApprovalSpec
	// open is true after an attempt saw the approval unused.
	open bool
	// counted is true once carried is set: the number of pods in the status beyond those
	// that Left knows.
	counted bool
	carried int32
}

// NewApprovals returns a controller; Start starts it.
func NewApprovals(base controller.Base, options ApprovalOptions) *ApprovalController {
	c := &ApprovalController{ApprovalOptions: options}
	c.Controller = controller.New(base, controller.Options[string]{
		Name: "tollgate-approvals", Started: c.reset, Reconcile: c.reconcile,
		Watches: map[client.Object]toolscache.ResourceEventHandler{
			&v1alpha1.EvictionApproval{}: controller.OnEvent(func(approval client.Object) { c.Add(approval.GetName()) }),
			&corev1.Node{}: controller.OnEvent(func(node client.Object) {
				c.addMatching(func(spec *v1alpha1.EvictionApprovalSpec) bool { return spec.Node == node.GetName() })
			}),
		},
	})
	return c
}

// reset removes all states: approvals may have been deleted while another replica led.
func (c *ApprovalController) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.states = map[string]*approvalState{}
}

// RuleChanged queues the approvals for a rule that was created, changed or deleted. It
// does not block.
func (c *ApprovalController) RuleChanged(name string) {
	c.addMatching(func(spec *v1alpha1.EvictionApprovalSpec) bool { return spec.DeviceTaintRule == name })
}

// PatchesChanged queues the approvals for ResourceSlicePatches whose rules were created,
// changed or deleted. It does not block.
func (c *ApprovalController) PatchesChanged(names []string) {
	for _, name := range names {
		c.addMatching(func(spec *v1alpha1.EvictionApprovalSpec) bool { return spec.ResourceSlicePatch == name })
	}
}

// addMatching queues the approvals whose spec matches.
func (c *ApprovalController) addMatching(matches func(*v1alpha1.EvictionApprovalSpec) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, state := range c.states {
		if matches(&state.spec) {
			c.Add(name)
		}
	}
}

// stateOf returns the state of an approval.
func (c *ApprovalController) stateOf(approval *v1alpha1.EvictionApproval) *approvalState {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.states[approval.Name]
	if state == nil || state.uid != approval.UID {
		state = &approvalState{uid: approval.UID, spec: approval.Spec}
		c.states[approval.Name] = state
	}
	return state
}

// reconcile writes the status of one approval if it differs: whether the approval was
// used, and the number of evicted pods.
func (c *ApprovalController) reconcile(ctx context.Context, name string) (time.Duration, error) {
	var approval v1alpha1.EvictionApproval
	if err := c.Cache.Get(ctx, types.NamespacedName{Name: name}, &approval); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.states, name)
		return 0, client.IgnoreNotFound(err)
	}
	now, state, before := c.Clock.Now(), c.stateOf(&approval), approval.DeepCopy()
	c.updateUse(&approval, state, now)
	meta.SetStatusCondition(&approval.Status.Conditions, approvalReady(&approval, now))
	approval.Status.ObservedGeneration = approval.Generation
	if !equality.Semantic.DeepEqual(before.Status, approval.Status) {
		if err := c.WriteStatus(ctx, "status of approval", &approval, controller.ChangesTo(before)); client.IgnoreNotFound(err) != nil {
			return 0, err
		}
		logr.FromContextOrDiscard(ctx).V(1).Info("wrote status of approval", "approval", name, "evicted", approval.Status.Evicted)
	}
	// The metric counts an approval when it is first seen used, also if a breaker wrote
	// the use.
	used := approval.Status.UsedAt
	if used != nil && (state.open || before.Status.UsedAt == nil) {
		kind := "evictionpolicy"
		if approval.Spec.EvictionPolicy == "" {
			kind = string(breaker.CarrierOf(&approval).Kind)
		}
		c.Metrics.WithLabelValues(kind).Inc()
	}
	state.open = used == nil
	switch {
	case used == nil:
		return min(max(breaker.ExpiryOf(&approval).Sub(now), 0), openPause), nil
	case now.Sub(used.Time) < countFor:
		return countPause, nil
	default:
		return 0, nil
	}
}

// updateUse sets in the status whether an approval was used, and the number of evicted pods.
// An approval is used at the time at which the approved taint was written; breakers write the
// use of an approval for an EvictionPolicy. Every replica tracks the times of taints, so a
// change of the leader does not matter.
func (c *ApprovalController) updateUse(approval *v1alpha1.EvictionApproval, state *approvalState, now time.Time) {
	spec, status, carrier := &approval.Spec, &approval.Status, breaker.CarrierOf(approval)
	if status.UsedAt == nil && c.Standing != nil && spec.EvictionPolicy == "" {
		_, taint, ok := c.Standing(carrier, spec.Taint.Key)
		at := taint.Written(now)
		if ok && taint.Effect == spec.Taint.Effect && !at.Before(approval.CreationTimestamp.Time) && !at.After(breaker.ExpiryOf(approval)) {
			status.UsedAt = new(metav1.NewTime(at))
		}
	}
	switch {
	case status.UsedAt == nil:
	case spec.EvictionPolicy != "":
		status.Evicted = status.Released
	case c.Left != nil:
		// UsedAt has whole seconds.
		left := int32(min(c.Left(carrier, spec.Taint.Key, status.UsedAt.Truncate(time.Second)), math.MaxInt32/2)) //nolint:gosec // It is bounded.
		// A replica that started after the use adds its count to the number in the status.
		if !state.counted {
			state.counted, state.carried = true, max(status.Evicted-left, 0)
		}
		status.Evicted = max(status.Evicted, state.carried+left)
	}
}

// approvalReady returns the condition Ready of an approval, whose status says whether it
// was used. An approval for a taint is used once; one for an EvictionPolicy releases pods
// one after the other until it expires.
func approvalReady(approval *v1alpha1.EvictionApproval, now time.Time) metav1.Condition {
	status, reason := metav1.ConditionFalse, reasonUsed
	var message string
	end := breaker.ExpiryOf(approval).UTC().Format(time.RFC3339)
	policy, released, lasts := approval.Spec.EvictionPolicy, approval.Status.Released, now.Before(breaker.ExpiryOf(approval))
	switch {
	case policy != "" && lasts && released < approval.Spec.MaxPods:
		status, reason = metav1.ConditionTrue, reasonOpen
		message = fmt.Sprintf("The breaker of EvictionPolicy %s may let %d more pods go, until %s.", policy, approval.Spec.MaxPods-released, end)
	case policy != "" && approval.Status.UsedAt != nil:
		message = fmt.Sprintf("The breaker of EvictionPolicy %s has let %d pods go because of it.", policy, released)
	case approval.Status.UsedAt != nil:
		message = "The taint was set, or a breaker let pods go because of it; the approval cannot be used for another."
	case policy == "" && lasts:
		status, reason = metav1.ConditionTrue, reasonOpen
		message = fmt.Sprintf("The approval can be used once, until %s.", end)
	default:
		reason = reasonExpired
		message = fmt.Sprintf("The approval could be used until %s, and was not.", end)
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: message,
		ObservedGeneration: approval.Generation, LastTransitionTime: metav1.NewTime(now),
	}
}
