package status

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// Reasons of the condition Ready of policies.
const (
	reasonInForce  = "InForce"
	reasonPartOfIt = "PartlyInForce"
	reasonDisabled = "Disabled"
	// reasonNotRegistered says that the API server does not call Tollgate as policies need.
	reasonNotRegistered = "NotRegistered"
)

// registrationPause is the delay after which a policy is looked at again whose webhooks are being
// registered.
const registrationPause = 200 * time.Millisecond

// maxMessage caps the message, which lists all problems of a policy.
const maxMessage = 1024

// ReadyController writes the condition Ready of policies, and to the status of
// PlacementPolicies the policies that guards stand for.
type ReadyController struct {
	*controller.Controller[policyKey]

	enabled    func(kind policyset.Kind) bool
	registered func() (registered bool, message string)

	mu     sync.Mutex
	states map[policyKey]policyState
}

// policyKey names a policy.
type policyKey struct {
	kind *policyset.Kind
	name string
}

// policyState is the last seen generation of a policy with its condition, which is kept
// because a write of the status alone needs no compilation. The condition is empty until
// this replica has the policy in force.
type policyState struct {
	uid        types.UID
	generation int64
	condition  metav1.Condition
}

// NewReady returns a controller; Start starts it. enabled reports whether the feature gate
// of a kind is on. registered reports whether the webhooks are registered that the policies in
// force need, or for how long they have not been: a message says why; nil if they were installed.
func NewReady(base controller.Base, enabled func(kind policyset.Kind) bool, registered func() (registered bool, message string)) *ReadyController {
	c := &ReadyController{enabled: enabled, registered: registered}
	watches := map[client.Object]toolscache.ResourceEventHandler{}
	for _, kind := range policyset.Kinds() {
		watches[kind.New()] = controller.OnEvent(func(object client.Object) { c.Add(policyKey{&kind, object.GetName()}) })
	}
	c.Controller = controller.New(base, controller.Options[policyKey]{
		Name: "tollgate-policy-status", Workers: 2, Watches: watches, PoliciesChanged: c.policiesChanged, Reconcile: c.reconcile,
		Describe: func(k policyKey) string { return k.kind.Name + "/" + k.name },
		Started: func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.states = map[policyKey]policyState{}
		},
	})
	return c
}

// policiesChanged queues the policies that have come into force.
func (c *ReadyController) policiesChanged(context.Context) {
	current := c.Policies.Current()
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, state := range c.states {
		if state.condition.Type == "" && current.Holds(state.uid, state.generation) {
			c.Add(k)
		}
	}
}

// Recheck queues all policies, after registered has another answer.
func (c *ReadyController) Recheck() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.states {
		c.Add(k)
	}
}

// exchange replaces the state of a policy, and returns the one before.
func (c *ReadyController) exchange(k policyKey, state policyState) policyState {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.states[k]
	c.states[k] = state
	return before
}

// reconcile writes the condition of one policy if it differs.
func (c *ReadyController) reconcile(ctx context.Context, k policyKey) (time.Duration, error) {
	kind := k.kind
	object := kind.New()
	if err := c.Cache.Get(ctx, types.NamespacedName{Name: k.name}, object); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.states, k)
		return 0, client.IgnoreNotFound(err)
	}
	enabled := c.enabled(*kind)
	state := policyState{uid: object.GetUID(), generation: object.GetGeneration()}
	// The state is stored first, so that policiesChanged misses no policy.
	before := c.exchange(k, state)
	if enabled && !c.Policies.Current().Holds(state.uid, state.generation) {
		return 0, nil
	}
	if before.uid == state.uid && before.generation == state.generation {
		state.condition = before.condition
	}
	if state.condition.Type == "" {
		state.condition = c.readyCondition(kind, object)
	}
	c.exchange(k, state)

	condition := state.condition
	if enabled && c.registered != nil {
		switch registered, message := c.registered(); {
		case message != "":
			condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reasonNotRegistered, message
		case !registered:
			return registrationPause, nil
		}
	}
	stored := object.DeepCopyObject().(client.Object)
	condition.LastTransitionTime = metav1.NewTime(c.Clock.Now())
	observed, conditions := kind.Status(object)
	meta.SetStatusCondition(conditions, condition)
	*observed = state.generation
	if p, ok := object.(*v1alpha1.PlacementPolicy); ok {
		p.Status.Guard, _ = c.guardInForce(p)
	}
	if equality.Semantic.DeepEqual(stored, object) {
		return 0, nil
	}
	if err := c.WriteStatus(ctx, "status of "+kind.Name, object, controller.ChangesTo(stored)); client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	logr.FromContextOrDiscard(ctx).V(1).Info("wrote status", "kind", kind.Name, "policy", k.name, "reason", condition.Reason)
	return 0, nil
}

// guardInForce returns the policies that the guard of a PlacementPolicy stands for, nil for
// none, without those of kinds whose feature gate is off. For each of these it returns an
// error. Nothing of a guard is in force while the kind PlacementPolicy is off.
func (c *ReadyController) guardInForce(p *v1alpha1.PlacementPolicy) (*v1alpha1.PlacementGuardStatus, field.ErrorList) {
	tolerations, taints := placement.Guard(p)
	var errs field.ErrorList
	enabled := func(name string) bool {
		kind, _ := policyset.KindOf(name)
		if c.enabled(kind) {
			return true
		}
		errs = append(errs, field.Forbidden(field.NewPath("spec", "guard"), "needs the feature gate "+kind.Gate+", which is off"))
		return false
	}
	guard := v1alpha1.PlacementGuardStatus{}
	if tolerations != nil && enabled("TolerationPolicy") {
		guard.TolerationPolicy = &tolerations.Spec
	}
	if taints != nil && enabled("TaintPolicy") {
		guard.TaintPolicy = &taints.Spec
	}
	if placements, _ := policyset.KindOf("PlacementPolicy"); guard == (v1alpha1.PlacementGuardStatus{}) || !c.enabled(placements) {
		return nil, errs
	}
	return &guard, errs
}

// readyCondition returns the condition that a policy should have.
func (c *ReadyController) readyCondition(kind *policyset.Kind, object policyset.Object) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: object.GetGeneration(),
	}
	if !c.enabled(*kind) {
		condition.Reason, condition.Message = reasonDisabled, "The feature gate "+kind.Gate+" is off: the policy has no effect."
		return condition
	}
	errs := kind.Validate(object)
	if p, ok := object.(*v1alpha1.PlacementPolicy); ok {
		_, disabled := c.guardInForce(p)
		errs = append(errs, disabled...)
	}
	if len(errs) == 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, reasonInForce, "The policy is compiled and in force."
		return condition
	}
	condition.Reason, condition.Message = reasonPartOfIt, policy.Short(errs.ToAggregate().Error(), maxMessage)
	return condition
}
