package rulestatus

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/evictor/panics"
	"github.com/tollgate-dev/tollgate/tracker"
)

// The defaults of Options.
const (
	DefaultWorkers        = 4
	DefaultAttemptTimeout = 10 * time.Second
)

const (
	// The bounds of the wait between two attempts to write one status.
	retryBase = 100 * time.Millisecond
	retryMax  = 30 * time.Second
	// longestDelay bounds what an answer of the API server may ask for.
	longestDelay = 5 * time.Minute
)

// ruleTracker is what is asked of a tracker.Tracker.
type ruleTracker interface {
	Rules() []string
	Rule(name string) (tracker.Rule, bool)
	Impact(name string) (tracker.Impact, bool)
	RefreshRule(rule tracker.Rule, before string, now time.Time) []tracker.Key
}

// Kind is of what objects the status is kept. The zero Kind is KindRule.
type Kind int

// The kinds.
const (
	// KindRule stands for DeviceTaintRules.
	KindRule Kind = iota
	// KindPatch stands for ResourceSlicePatches.
	KindPatch
)

// noun returns what logs and errors call an object of the kind.
func (k Kind) noun() string {
	if k == KindPatch {
		return "patch"
	}
	return "rule"
}

// named returns a log about one object of the kind.
func (k Kind) named(log logr.Logger, name string) logr.Logger {
	if k == KindPatch {
		return log.WithValues("patch", name)
	}
	return log.WithValues("rule", name)
}

// queueName is the name label of the workqueue metrics.
func (k Kind) queueName() string { return "tollgate-" + k.noun() + "-status" }

// Options are what a Controller works with. Fields without a default are required. What
// they say about rules is about patches for a controller of those.
type Options struct {
	// Kind says of what objects the status is kept.
	Kind Kind
	// Tracker knows the rules and what they select. Patches is one of patches.
	Tracker ruleTracker
	// Synced reports whether the tracker knows all nodes and pods, every claim, and all
	// devices that it is permitted to see: a pod whose claims are not known would not be
	// found, while a device that nobody may list is not counted. It is asked again
	// and again, and is false from before the first of what is not served any more is
	// forgotten.
	Synced func() bool
	// Leads reports whether this replica still holds the lease. It is asked before
	// each write. Nil stands for always.
	Leads func() bool
	// Applier writes conditions.
	Applier applier
	// Clock tells the time of the API server, Local that of this machine; Clock when
	// nil. Pauses are measured by Local.
	Clock clock.PassiveClock
	Local clock.WithTicker
	// Decide reports whether a pod has to leave, now or later.
	Decide func(tracker.Situation) bool
	// Evicted returns how many pods this process evicted for the rule with a UID, and
	// Forget lets go of that number.
	Evicted func(types.UID) int
	Forget  func(types.UID)
	// Unanswered returns the pods whose end was asked for because of the rule with a UID
	// and of which it is not known yet whether Evicted will count them; there are none
	// when nil.
	Unanswered func(types.UID) []tracker.Key
	// Held returns how many pods are held that have to leave because of the rule with a
	// UID, and of what holds most of them the reason and what to do about it; nobody is
	// when nil.
	Held func(types.UID) (pods int, reason, why string)
	// Written reports whether the rules that a patch is to have are all written, as its
	// generation has them; always when nil. Before that, and for a while after, its
	// eviction is not over.
	Written func(patch *tracker.Rule) bool
	// HeldOnly leaves the condition EvictionInProgress to Kubernetes' own controller,
	// where that evicts as well.
	HeldOnly bool
	// PodsChanged takes the pods that the answer to a write brings news for; nobody
	// does when nil.
	PodsChanged func([]tracker.Key)
	Metrics     *Metrics
	// Workers is how many rules are looked at at once; DefaultWorkers when zero.
	Workers int
	// AttemptTimeout bounds a write; DefaultAttemptTimeout when zero. As for the
	// evictor, it must be no longer than the lease lasts beyond the time for which
	// Leads answers yes.
	AttemptTimeout time.Duration
}

// Controller keeps the status of DeviceTaintRules, or of ResourceSlicePatches.
type Controller struct {
	options Options
	backoff workqueue.TypedRateLimiter[string]
	// silent is true while it has been said that the tracker knows too little, and
	// unserved that the API has no status of rules.
	silent, unserved atomic.Bool

	mu sync.Mutex
	// queue wakes the workers; nil while they do not run. A rule waits in it for
	// itself alone, and is worked on by one worker at a time.
	queue workqueue.TypedDelayingInterface[string]
	// memories are what is known of rules by name, former what was known of them when
	// this replica last led. A memory is only written to by who works on its rule.
	memories, former map[string]*memory
}

// New returns a controller. It starts nothing: that is what Start does.
func New(options Options) (*Controller, error) {
	needs := options.Kind.noun() + " status needs "
	switch {
	case options.Tracker == nil, options.Synced == nil, options.Applier == nil, options.Clock == nil:
		return nil, errors.New(needs + "a tracker, synced, an applier and a clock")
	case options.Decide == nil, options.Evicted == nil, options.Forget == nil, options.Metrics == nil:
		return nil, errors.New(needs + "decide, evicted, forget and metrics")
	}
	if options.Local == nil {
		local, ok := options.Clock.(clock.WithTicker)
		if !ok {
			return nil, errors.New(needs + "a local clock")
		}
		options.Local = local
	}
	if options.Leads == nil {
		options.Leads = func() bool { return true }
	}
	if options.Held == nil {
		options.Held = func(types.UID) (int, string, string) { return 0, "", "" }
	}
	if options.Written == nil {
		options.Written = func(*tracker.Rule) bool { return true }
	}
	if options.Unanswered == nil {
		options.Unanswered = func(types.UID) []tracker.Key { return nil }
	}
	if options.PodsChanged == nil {
		options.PodsChanged = func([]tracker.Key) {}
	}
	if options.Workers == 0 {
		options.Workers = DefaultWorkers
	}
	if options.AttemptTimeout == 0 {
		options.AttemptTimeout = DefaultAttemptTimeout
	}
	return &Controller{
		options:  options,
		backoff:  workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryBase, retryMax),
		memories: map[string]*memory{},
		former:   map[string]*memory{},
	}, nil
}

// NeedLeaderElection is true: one replica writes.
func (c *Controller) NeedLeaderElection() bool { return true }

// Start writes until ctx is done and returns when all that it started has stopped.
// It looks at all rules at once.
func (c *Controller) Start(ctx context.Context) error {
	queue := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{
		Name: c.options.Kind.queueName(), Clock: c.options.Local,
	})
	known := c.begin(queue)
	defer c.end()
	var running sync.WaitGroup
	for range c.options.Workers {
		running.Go(func() { c.work(ctx, queue) })
	}
	c.RulesChanged(known)
	c.RulesChanged(c.options.Tracker.Rules())
	logr.FromContextOrDiscard(ctx).Info(c.options.Kind.noun()+" status started", "workers", c.options.Workers)

	<-ctx.Done()
	queue.ShutDown()
	running.Wait()
	return nil
}

// begin makes the memories those of an earlier time, and returns whose they are.
func (c *Controller) begin(queue workqueue.TypedDelayingInterface[string]) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = queue
	maps.Copy(c.former, c.memories)
	clear(c.memories)
	return slices.Collect(maps.Keys(c.former))
}

func (c *Controller) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = nil
}

// panicPause is the time until a rule is looked at again after a panic.
const panicPause = 30 * time.Second

// work looks at rules until the queue is shut down.
func (c *Controller) work(ctx context.Context, queue workqueue.TypedDelayingInterface[string]) {
	for {
		name, down := queue.Get()
		if down {
			return
		}
		// A queue that is shut down still hands out what it holds.
		if ctx.Err() == nil {
			again := panicPause
			_ = panics.Contain(ctx, c.options.Kind.queueName(), func() error {
				again = c.step(ctx, name)
				return nil
			})
			if again > 0 {
				queue.AddAfter(name, again)
			}
		}
		queue.Done(name)
	}
}

// RuleChanged names a rule that was created, changed or deleted. It does not block,
// and does nothing while the controller does not run: Start looks at all rules.
func (c *Controller) RuleChanged(name string) {
	c.RulesChanged([]string{name})
}

// RulesChanged names rules for which pods have to be evicted, were, or need not be
// any more. Like RuleChanged, it does not block.
func (c *Controller) RulesChanged(names []string) {
	c.mu.Lock()
	queue := c.queue
	c.mu.Unlock()
	if queue == nil {
		return
	}
	for _, name := range names {
		queue.Add(name)
	}
}
