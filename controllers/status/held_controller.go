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
	// heldLookPause is between two looks at what is held, and so the least between two
	// writes of one status.
	heldLookPause = 2 * time.Second
)

// heldObjects is what is used of a cache of EvictionPolicies.
type heldObjects interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
}

// heldStatuses writes the status of EvictionPolicies.
type heldStatuses interface {
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error
}

// HeldOptions are what a Controller works with. All of them are required.
type HeldOptions struct {
	// Cache holds EvictionPolicies, and Status writes their status.
	Cache  heldObjects
	Status heldStatuses
	// Held returns the pods that are held. It is believed once Settled reports that all
	// pods have been looked at in this term of leadership.
	Held    func() []evictor.Held
	Settled func() bool
	// Policies are those in force.
	Policies func() *eviction.Set
	// Clock tells the time of the API server, Local that of this machine.
	Clock clock.PassiveClock
	Local clock.WithTicker
	Leads func() bool
	// Timeout bounds a look, see controllers.LoopOptions.
	Timeout time.Duration
}

// HeldController writes what EvictionPolicies hold into their status.
type HeldController struct {
	options HeldOptions
	loop    *controllers.Loop[look]
}

// look is the one thing that the loop works off.
type look struct{}

// NewHeld returns a controller. It starts nothing: that is what Start does.
func NewHeld(options HeldOptions) *HeldController {
	c := &HeldController{options: options}
	c.loop = controllers.NewLoop(controllers.LoopOptions[look]{
		Name: heldQueueName, Clock: options.Local, Leads: options.Leads, Timeout: options.Timeout, Step: c.step,
		Describe: func(look) string { return "all EvictionPolicies" },
	})
	return c
}

// Start works until ctx is done.
func (c *HeldController) Start(ctx context.Context) error {
	c.loop.Run(ctx, func() { c.loop.Add(look{}) })
	return nil
}

// step looks at all policies. One whose status cannot be written does not keep the
// others waiting.
func (c *HeldController) step(ctx context.Context, _ look) (time.Duration, error) {
	if !c.options.Settled() {
		return heldLookPause, nil
	}
	by := holdBy(c.options.Held())
	for _, policy := range c.options.Policies().All() {
		if err := c.write(ctx, policy, by[policy.UID]); err != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("cannot write what is held yet", "policy", policy.Name, "reason", err.Error())
		}
	}
	return heldLookPause, nil
}

// write writes what a policy holds where its status says something else. The next look
// tries again where that fails.
func (c *HeldController) write(ctx context.Context, policy *eviction.Policy, h *held) error {
	var object v1alpha1.EvictionPolicy
	if err := c.options.Cache.Get(ctx, types.NamespacedName{Name: policy.Name}, &object); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := object.DeepCopy()
	if object.UID != policy.UID || !write(&object, h, metav1.NewTime(c.options.Clock.Now())) {
		return nil
	}
	err := c.options.Status.Patch(ctx, &object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of EvictionPolicy %s: %w", policy.Name, err)
	}
	return nil
}
