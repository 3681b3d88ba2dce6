package status

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/policy/eviction"
)

const (
	// heldQueueName is the name label of the workqueue metrics.
	heldQueueName = "tollgate-evictions"
	// heldLookPause is the delay between two steps, and so the minimum between two writes
	// of one status.
	heldLookPause = 2 * time.Second
)

// heldObjects reads EvictionPolicies from a cache.
type heldObjects interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
}

// heldStatuses writes the status of EvictionPolicies.
type heldStatuses interface {
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error
}

// HeldOptions configures a HeldController. All fields are required.
type HeldOptions struct {
	// Cache holds EvictionPolicies, and Status writes their status.
	Cache  heldObjects
	Status heldStatuses
	// Held returns the held pods. It is complete once Settled reports that all pods have
	// been evaluated in this term of leadership.
	Held    func() []evictor.Held
	Settled func() bool
	// Policies returns the policies in force.
	Policies func() *eviction.Set
	// Clock is the clock of the API server, Local that of this machine.
	Clock clock.PassiveClock
	Local clock.WithTicker
	Leads func() bool
	// Timeout bounds a step, see controllers.LoopOptions.
	Timeout time.Duration
}

// HeldController writes into the status of EvictionPolicies which pods they hold.
type HeldController struct {
	options HeldOptions
	loop    *controllers.Loop[allPolicies]
}

// allPolicies is the only key of the queue.
type allPolicies struct{}

// NewHeld returns a controller; Start starts it.
func NewHeld(options HeldOptions) *HeldController {
	c := &HeldController{options: options}
	c.loop = controllers.NewLoop(controllers.LoopOptions[allPolicies]{
		Name: heldQueueName, Clock: options.Local, Leads: options.Leads, Timeout: options.Timeout, Step: c.step,
		Describe: func(allPolicies) string { return "all EvictionPolicies" },
	})
	return c
}

// Start runs the controller until ctx is done.
func (c *HeldController) Start(ctx context.Context) error {
	c.loop.Run(ctx, func() { c.loop.Add(allPolicies{}) })
	return nil
}

// step updates the statuses of all policies. A failed write does not stop the others.
func (c *HeldController) step(ctx context.Context, _ allPolicies) (time.Duration, error) {
	if !c.options.Settled() {
		return heldLookPause, nil
	}
	heldPods := heldByPolicy(c.options.Held())
	for _, policy := range c.options.Policies().All() {
		if err := c.write(ctx, policy, heldPods[policy.UID]); err != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("cannot write what is held yet", "policy", policy.Name, "reason", err.Error())
		}
	}
	return heldLookPause, nil
}

// write writes the status of a policy if it differs. After an error, the next step tries
// again.
func (c *HeldController) write(ctx context.Context, policy *eviction.Policy, h *heldPods) error {
	var object v1alpha1.EvictionPolicy
	if err := c.options.Cache.Get(ctx, types.NamespacedName{Name: policy.Name}, &object); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := object.DeepCopy()
	if object.UID != policy.UID || !updateStatus(&object, h, metav1.NewTime(c.options.Clock.Now())) {
		return nil
	}
	err := c.options.Status.Patch(ctx, &object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of EvictionPolicy %s: %w", policy.Name, err)
	}
	return nil
}
