package snapshot

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/tolerations"
)

// Reasons of the condition Ready.
const (
	reasonInForce     = "InForce"
	reasonPartOfIt    = "PartlyInForce"
	reasonDisabled    = "Disabled"
	messageDisabled   = "The feature gate TolerationPolicies is off: the policy has no effect."
	messageInForce    = "The policy is compiled and judges every review."
	maxConditionWords = 1024
)

// Status writes the condition Ready of policies.
type Status struct {
	client client.Client
	clock  clock.PassiveClock
	leads  func() bool
	// enabled says whether policies are judged by at all.
	enabled bool
}

// leaderPoll is how often a replica that does not lead looks whether it does.
const leaderPoll = 10 * time.Second

// AddStatus adds the controller that writes the status of policies to mgr. It
// writes on the replica that leads. Enabled says whether policies are judged by.
func AddStatus(mgr ctrl.Manager, clock clock.PassiveClock, leads func() bool, enabled bool) error {
	status := &Status{client: mgr.GetClient(), clock: clock, leads: leads, enabled: enabled}
	err := builder.ControllerManagedBy(mgr).
		Named("tolerationpolicy-status").
		For(&v1alpha1.TolerationPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(status)
	if err != nil {
		return fmt.Errorf("add the status controller: %w", err)
	}
	return nil
}

// Reconcile writes the condition of one policy where it differs.
func (s *Status) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !s.leads() {
		return reconcile.Result{RequeueAfter: leaderPoll}, nil
	}
	var object v1alpha1.TolerationPolicy
	if err := s.client.Get(ctx, req.NamespacedName, &object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := object.DeepCopy()
	condition := ready(&object, s.enabled)
	condition.LastTransitionTime = metav1.Time{Time: s.clock.Now()}
	changed := meta.SetStatusCondition(&object.Status.Conditions, condition)
	if !changed && object.Status.ObservedGeneration == object.Generation {
		return reconcile.Result{}, nil
	}
	object.Status.ObservedGeneration = object.Generation
	err := s.client.Status().Patch(ctx, &object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("write status of TolerationPolicy %s: %w", req.Name, err)
	}
	return reconcile.Result{}, nil
}

// ready returns the condition that a policy should have. It is pure.
func ready(object *v1alpha1.TolerationPolicy, enabled bool) metav1.Condition {
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             metav1.ConditionTrue,
		Reason:             reasonInForce,
		Message:            messageInForce,
		ObservedGeneration: object.Generation,
	}
	if !enabled {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reasonDisabled, messageDisabled
		return condition
	}
	if errs := tolerations.ValidatePolicy(object); len(errs) > 0 {
		condition.Status = metav1.ConditionFalse
		condition.Reason = reasonPartOfIt
		condition.Message = errs.ToAggregate().Error()
		if len(condition.Message) > maxConditionWords {
			condition.Message = condition.Message[:maxConditionWords] + "..."
		}
	}
	return condition
}
