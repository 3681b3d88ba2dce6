package evictions

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
	"github.com/tollgate-dev/tollgate/controllers/loop"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/policy/evicting"
)

const (
	// queueName is the name label of the workqueue metrics.
	queueName = "tollgate-evictions"
	// lookPause is between two looks at what is held, and so the least between two
	// writes of one status.
	lookPause = 2 * time.Second
)

// objects is what is used of a cache of EvictionPolicies.
type objects interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
}

// statuses writes the status of EvictionPolicies.
type statuses interface {
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error
}

// Options are what a Controller works with. All of them are required.
type Options struct {
	// Cache holds EvictionPolicies, and Status writes their status.
	Cache  objects
	Status statuses
	// Held returns the pods that are held. It is believed once Settled reports that all
	// pods have been looked at in this term of leadership.
	Held    func() []evictor.Held
	Settled func() bool
	// Policies are those in force.
	Policies func() *evicting.Set
	// Clock tells the time of the API server, Local that of this machine.
	Clock clock.PassiveClock
	Local clock.WithTicker
	Leads func() bool
	// Timeout bounds a look, see loop.Options.
	Timeout time.Duration
}

// Controller writes what EvictionPolicies hold into their status.
type Controller struct {
	options Options
	loop    *loop.Loop[look]
}

// look is the one thing that the loop works off.
type look struct{}

// New returns a controller. It starts nothing: that is what Start does.
func New(options Options) *Controller {
	c := &Controller{options: options}
	c.loop = loop.New(loop.Options[look]{
		Name: queueName, Clock: options.Local, Leads: options.Leads, Timeout: options.Timeout, Step: c.step,
		Describe: func(look) string { return "all EvictionPolicies" },
	})
	return c
}

// Start works until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	c.loop.Run(ctx, func() { c.loop.Add(look{}) })
	return nil
}

// step looks at all policies. One whose status cannot be written does not keep the
// others waiting.
func (c *Controller) step(ctx context.Context, _ look) (time.Duration, error) {
	if !c.options.Settled() {
		return lookPause, nil
	}
	by := holdBy(c.options.Held())
	for _, policy := range c.options.Policies().All() {
		if err := c.write(ctx, policy, by[policy.UID]); err != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("cannot write what is held yet", "policy", policy.Name, "reason", err.Error())
		}
	}
	return lookPause, nil
}

// write writes what a policy holds where its status says something else. The next look
// tries again where that fails.
func (c *Controller) write(ctx context.Context, policy *evicting.Policy, h *held) error {
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
