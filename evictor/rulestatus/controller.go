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

// Options configure a Controller. Fields without a default are required. Those about rules
// are about patches for a controller of patches.
type Options struct {
	Objects
	Evictor
	Lease

	// Synced reports whether the tracker has all nodes and pods, every claim, and all
	// devices that may be listed: a pod whose claims are not known would not be
	// found, while a device that may not be listed is not counted. It is called again
	// and again, and is false before the first object of a resource that is not served any
	// more is forgotten.
	Synced func() bool
	// Clock has the time of the API server, Local that of this machine; Clock when
	// nil. Pauses are measured by Local.
	Clock   clock.PassiveClock
	Local   clock.WithTicker
	Metrics *Metrics
	// Workers is how many rules are worked on at once; DefaultWorkers when zero.
	Workers int
}

// Objects are the objects whose status is kept.
type Objects struct {
	Kind Kind
	// Tracker has the rules and the pods that they select. Patches is one of patches.
	Tracker ruleTracker
	// Applier writes conditions.
	Applier applier
	// Written reports whether all rules of a patch, in its current generation, are written;
	// always when nil. Before that, and for a while after, its eviction is not over.
	Written func(patch *tracker.Rule) bool
	// HeldOnly leaves the condition EvictionInProgress to Kubernetes' own controller,
	// where that evicts as well.
	HeldOnly bool
}

// Evictor is the part of the evictor that a Controller uses.
type Evictor struct {
	// Decide reports whether a pod has to leave, now or later.
	Decide func(tracker.Situation) bool
	// Evicted returns how many pods this process evicted for the rule with a UID, and
	// Forget drops that number.
	Evicted func(types.UID) int
	Forget  func(types.UID)
	// Unanswered returns the pods whose eviction because of the rule with a UID has been
	// requested, and of which it is not known yet whether Evicted will count them; none
	// when nil.
	Unanswered func(types.UID) []tracker.Key
	// Held returns how many pods are held that have to leave because of the rule with a
	// UID, and for the cause that holds most of them the reason and the remedy; none
	// when nil.
	Held func(types.UID) (pods int, reason, why string)
	// PodsChanged is called with the pods that the answer to a write concerns. It may be
	// nil.
	PodsChanged func([]tracker.Key)
}

// Lease is the lease of the leader, as a Controller has to respect it.
type Lease struct {
	// Leads reports whether this replica still holds the lease. It is called before
	// each write. Nil stands for always.
	Leads func() bool
	// AttemptTimeout bounds a write; DefaultAttemptTimeout when zero. As for the
	// evictor, it must be no longer than the lease lasts beyond the time for which
	// Leads returns true.
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
