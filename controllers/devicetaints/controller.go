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
	// policiesPause is how long rules wait for the policies to be read.
	policiesPause = time.Second
	// publishedPause is how often the taints that drivers publish are looked at.
	publishedPause = 5 * time.Second
	// recheck is how often a rule that has a twin, or cannot have one, is looked at
	// again unasked.
	recheck = 10 * time.Minute
)

// devices knows rules, and what drivers publish; a tracker.Tracker does.
type devices interface {
	Rules() []string
	Rule(name string) (tracker.Rule, bool)
	PublishedEvicting() []tracker.Published
}

// policies hands out those in force, and says when they changed.
type policies interface {
	Current() *policyset.Set
	Subscribe() (changed <-chan struct{}, stop func())
}

// rules writes DeviceTaintRules; a controllers.RuleClient does.
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

// Options are what a Controller works with. All but Window are required.
type Options struct {
	// Devices knows rules and published taints. Who feeds it calls RuleChanged.
	Devices devices
	// Synced reports whether Devices knows all rules and slices that there are: what is
	// not known would be taken for gone.
	Synced func() bool
	// Client writes rules.
	Client rules
	// Policies are those in force.
	Policies policies
	// Window says that Tollgate is in mode Window.
	Window bool
	// Local is the clock of this machine.
	Local clock.WithTicker
	Leads func() bool
	// Timeout bounds a step, see controllers.LoopOptions.
	Timeout  time.Duration
	Recorder recorder
	Metrics  *Metrics
}

// Controller makes, corrects and removes twins.
type Controller struct {
	options Options
	loop    *controllers.Loop[key]
	// settlements are by the names of twins. They are the worker's, of which there is one.
	settlements map[string]settlement
}

// key is what is looked at: a rule, or with the zero key all that drivers publish.
type key struct{ rule string }

func (k key) describe() string {
	if k == (key{}) {
		return "all ResourceSlices"
	}
	return "DeviceTaintRule/" + k.rule
}

// New returns a controller. It starts nothing: that is what Start does.
func New(options Options) *Controller {
	c := &Controller{options: options, settlements: map[string]settlement{}}
	c.loop = controllers.NewLoop(controllers.LoopOptions[key]{
		Name: queueName, Clock: options.Local, Leads: options.Leads, Timeout: options.Timeout, Workers: 1, Step: c.step,
		Describe: key.describe,
	})
	return c
}

// Start works until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	clear(c.settlements)
	changed, unsubscribe := c.options.Policies.Subscribe()
	defer unsubscribe()
	var following sync.WaitGroup
	c.loop.Run(ctx, func() {
		c.addAll()
		following.Go(func() { c.follow(ctx, changed) })
	})
	following.Wait()
	return nil
}

// RuleChanged names a rule that was created, changed or deleted: one that may need a
// twin, or the twin of one. It does not block.
func (c *Controller) RuleChanged(name string) {
	c.loop.Add(key{rule: name})
	if paired, ok := strings.CutSuffix(name, suffix); ok {
		c.loop.Add(key{rule: paired})
	}
}

// follow has everything looked at when the policies change.
func (c *Controller) follow(ctx context.Context, changed <-chan struct{}) {
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
		// By its name, one may be the twin of one that is gone.
		c.RuleChanged(name)
	}
}
