package devicetaints

import (
	"context"
	"strings"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/controllers"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// queueName is the name label of the workqueue metrics.
	queueName = "tollgate-pairing"
	// policiesPause is how long a key waits until the policies are loaded.
	policiesPause = time.Second
	// publishedPause is the delay between two steps for published taints.
	publishedPause = 5 * time.Second
	// recheck is the delay until a rule that has a paired rule, or cannot have one, is
	// checked again.
	recheck = 10 * time.Minute
)

// devices reads rules and published taints; tracker.Tracker implements it.
type devices interface {
	Rules() []string
	Rule(name string) (tracker.Rule, bool)
	PublishedEvicting() []tracker.Published
}

// policies returns the policies in force, and signals changes.
type policies interface {
	Current() *policyset.Set
	Subscribe() (changed <-chan struct{}, stop func())
}

// rules writes DeviceTaintRules; controllers.RuleClient implements it.
type rules interface {
	Get(ctx context.Context, name string) (*resourcev1.DeviceTaintRule, error)
	Create(ctx context.Context, build controllers.BuildRule) error
	Update(ctx context.Context, stored *resourcev1.DeviceTaintRule, build controllers.BuildRule) error
	Delete(ctx context.Context, stored *resourcev1.DeviceTaintRule) error
}

// recorder writes events. It must not block.
type recorder interface {
	Eventf(object runtime.Object, eventType, reason, format string, args ...any)
}

// Options configures a Controller. All fields but Window are required.
type Options struct {
	// Devices reads rules and published taints. The component that updates it must call
	// RuleChanged.
	Devices devices
	// Synced reports whether Devices has all rules and slices: the controller would treat
	// a missing one as deleted.
	Synced func() bool
	// Client writes rules.
	Client rules
	// Policies returns the policies in force.
	Policies policies
	// Window is true in mode Window.
	Window bool
	// Local is the clock of this machine.
	Local clock.WithTicker
	Leads func() bool
	// Timeout bounds a step, see controllers.LoopOptions.
	Timeout  time.Duration
	Recorder recorder
	Metrics  *Metrics
}

// Controller creates, updates and deletes paired rules.
type Controller struct {
	options Options
	loop    *controllers.Loop[key]
	// readResults are by the names of paired rules. Only the single worker uses them.
	readResults map[string]readResult
}

// key names a rule; the zero key stands for all published taints.
type key struct{ rule string }

func (k key) describe() string {
	if k == (key{}) {
		return "all ResourceSlices"
	}
	return "DeviceTaintRule/" + k.rule
}

// New returns a controller; Start starts it.
func New(options Options) *Controller {
	c := &Controller{options: options, readResults: map[string]readResult{}}
	c.loop = controllers.NewLoop(controllers.LoopOptions[key]{
		Name: queueName, Clock: options.Local, Leads: options.Leads, Timeout: options.Timeout, Workers: 1, Step: c.step,
		Describe: key.describe,
	})
	return c
}

// Start runs the controller until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	clear(c.readResults)
	changed, unsubscribe := c.options.Policies.Subscribe()
	defer unsubscribe()
	var background sync.WaitGroup
	c.loop.Run(ctx, func() {
		c.addAll()
		background.Go(func() { c.followPolicies(ctx, changed) })
	})
	background.Wait()
	return nil
}

// RuleChanged queues a rule that was created, changed or deleted, and the rule that it may
// be paired with. It does not block.
func (c *Controller) RuleChanged(name string) {
	c.loop.Add(key{rule: name})
	if paired, ok := strings.CutSuffix(name, suffix); ok {
		c.loop.Add(key{rule: paired})
	}
}

// followPolicies queues all keys when the policies change.
func (c *Controller) followPolicies(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			c.addAll()
		}
	}
}

func (c *Controller) addAll() {
	c.loop.Add(key{})
	for _, name := range c.options.Devices.Rules() {
		// The name may be that of a paired rule whose owner is gone.
		c.RuleChanged(name)
	}
}
