package rulestatus

import (
	"context"
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

// workers is the number of rules that are reconciled concurrently.
const workers = 4

const (
	// The bounds of the wait between two attempts to write one status.
	retryBase = 100 * time.Millisecond
	retryMax  = 30 * time.Second
	// longestDelay caps the Retry-After delay of an answer of the API server.
	longestDelay = 5 * time.Minute
)

// ruleTracker reads rules and their pods; tracker.Tracker and Patches implement it.
type ruleTracker interface {
	Rules() []string
	Rule(name string) (tracker.Rule, bool)
	Impact(name string) (tracker.Impact, bool)
	RefreshRule(rule tracker.Rule, before string, now time.Time) []tracker.Key
}

// Kind is the kind of the objects whose status is written. The zero Kind is KindRule.
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

// queueName is the name label of the workqueue metrics.
func (k Kind) queueName() string { return "tollgate-" + k.noun() + "-status" }

// Options configure a Controller. All fields are required. Those about rules
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
	// Clock has the time of the API server, Local that of this machine. Pauses are
	// measured by Local.
	Clock   clock.PassiveClock
	Local   clock.WithTicker
	Metrics *Metrics
}

// Objects are the objects whose status is kept.
type Objects struct {
	Kind Kind
	// Tracker has the rules and the pods that they select. Patches is one of patches.
	Tracker ruleTracker
	// Applier writes conditions.
	Applier applier
	// Written reports whether all rules of a patch, in its current generation, are written;
	// a rule always is. Before that, and for a while after, its eviction is not over.
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
	// requested, and of which it is not known yet whether Evicted will count them.
	Unanswered func(types.UID) []tracker.Key
	// Held returns how many pods are held that have to leave because of the rule with a
	// UID, and for the cause that holds most of them the reason and the remedy.
	Held func(types.UID) (pods int, reason, why string)
	// PodsChanged is called with the pods that the answer to a write concerns.
	PodsChanged func([]tracker.Key)
}

// Lease is the lease of the leader, as a Controller has to respect it.
type Lease struct {
	// Leads reports whether this replica still holds the lease. It is called before
	// each write.
	Leads func() bool
	// AttemptTimeout bounds a write. As for the evictor, it must be no longer than the
	// lease lasts beyond the time for which Leads returns true.
	AttemptTimeout time.Duration
}

// Controller keeps the status of DeviceTaintRules, or of ResourceSlicePatches.
type Controller struct {
	options Options
	backoff workqueue.TypedRateLimiter[string]
	// silent is true after the log said that the tracker is not synced, and unserved after
	// it said that the API server serves no status of rules.
	silent, unserved atomic.Bool

	mu sync.Mutex
	// queue has the names of rules; nil while the workers do not run. One worker at a time
	// reconciles a rule.
	queue workqueue.TypedDelayingInterface[string]
	// memories are the states of rules by name, and former those of the last time that this
	// replica led. Only the worker that reconciles a rule writes its memory.
	memories, former map[string]*memory
}

// New returns a controller; Start starts it.
func New(options Options) *Controller {
	return &Controller{
		options:  options,
		backoff:  workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryBase, retryMax),
		memories: map[string]*memory{},
		former:   map[string]*memory{},
	}
}

// NeedLeaderElection is true: one replica writes.
func (c *Controller) NeedLeaderElection() bool { return true }

// Start runs the controller until ctx is done, and returns when all workers have stopped.
// It queues all rules first.
func (c *Controller) Start(ctx context.Context) error {
	queue := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{
		Name: c.options.Kind.queueName(), Clock: c.options.Local,
	})
	known := c.begin(queue)
	defer c.end()
	var running sync.WaitGroup
	for range workers {
		running.Go(func() { c.work(ctx, queue) })
	}
	c.RulesChanged(known)
	c.RulesChanged(c.options.Tracker.Rules())
	logr.FromContextOrDiscard(ctx).Info(c.options.Kind.noun()+" status started", "workers", workers)

	<-ctx.Done()
	queue.ShutDown()
	running.Wait()
	return nil
}

// begin moves the memories to former, and returns the names of their rules.
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

// panicPause is the delay until a rule is reconciled again after a panic.
const panicPause = 30 * time.Second

// work reconciles rules until the queue is shut down.
func (c *Controller) work(ctx context.Context, queue workqueue.TypedDelayingInterface[string]) {
	for {
		name, down := queue.Get()
		if down {
			return
		}
		// A queue that is shut down still returns the keys that it contains.
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

// RuleChanged queues a rule that was created, changed or deleted. It does not block, and
// does nothing while the controller does not run: Start queues all rules.
func (c *Controller) RuleChanged(name string) {
	c.RulesChanged([]string{name})
}

// RulesChanged queues rules whose pods that have to be evicted changed. Like RuleChanged,
// it does not block.
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
