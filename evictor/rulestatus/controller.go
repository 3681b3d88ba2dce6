package rulestatus

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
)

// workers is the number of rules that are reconciled concurrently.
const workers = 4

// ruleTracker reads rules and their pods; tracker.Tracker and Patches implement it.
type ruleTracker interface {
	Rules() []string
	Rule(name string) (tracker.Rule, bool)
	Impact(name string) (tracker.Impact, bool)
	RefreshRule(rule tracker.Rule, before string, now time.Time) []tracker.Key
}

// The kinds of objects whose status is written, as logs, errors and queues name them.
const (
	// KindRule stands for DeviceTaintRules.
	KindRule = "rule"
	// KindPatch stands for ResourceSlicePatches.
	KindPatch = "patch"
)

// Options configure a Controller. All fields are required. Those about rules
// are about patches for a controller of patches.
type Options struct {
	Objects
	Evictor

	// Synced reports whether the tracker has all nodes and pods, every claim, and all
	// devices that may be listed. It is called before and after pods are counted, and must
	// be false before the tracker removes the first object of a resource that is not served
	// any more.
	Synced  func() bool
	Metrics *Metrics
}

// Objects are the objects whose status is written.
type Objects struct {
	// Kind is KindRule or KindPatch.
	Kind string
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

// Controller writes the status of DeviceTaintRules, or of ResourceSlicePatches. Add queues
// rules that changed, or whose pods changed.
type Controller struct {
	*controller.Controller[string]
	Options

	// silent is true after the log said that the tracker is not synced, and unserved after
	// it said that the API server serves no status of rules.
	silent, unserved atomic.Bool

	mu sync.Mutex
	// memories are the states of rules by name. Only the worker that reconciles a rule uses
	// the contents of its memory.
	memories map[string]*memory
}

// New returns a controller; Start starts it. Of base it uses clocks and lease.
func New(base controller.Base, options Options) *Controller {
	c := &Controller{Options: options, memories: map[string]*memory{}}
	c.Controller = controller.New(base, controller.Options[string]{
		Name: "tollgate-" + options.Kind + "-status", Workers: workers, Started: c.started, Reconcile: c.reconcile,
	})
	return c
}

// Start runs the controller until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	logr.FromContextOrDiscard(ctx).Info(c.Kind+" status started", "workers", workers)
	return c.Controller.Start(ctx)
}

// started queues all rules, and the rules of the term before, which may be deleted.
func (c *Controller) started() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, m := range c.memories {
		m.former = true
		c.Add(name)
	}
	c.Add(c.Tracker.Rules()...)
}

// remember returns the memory of a rule. A rule that was recreated under its name gets a
// new one (DE-75), and so does each rule in a new term of leadership: another replica may
// have written its status.
func (c *Controller) remember(rule *tracker.Rule, now moment) *memory {
	before := c.memoryOf(rule.Name, rule.UID)
	if before != nil && !before.former {
		if before.generation != rule.Generation {
			// A new generation is evaluated without a pause: a user has just written the rule and waits for its
			// status.
			before.generation, before.told, before.seen = rule.Generation, false, now.local
			before.evaluated, before.notBefore = time.Time{}, time.Time{}
		}
		return before
	}
	m := recall(rule, before, c.Evicted(rule.UID), now)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memories[rule.Name] = m
	return m
}

// memoryOf returns the memory of the rule with a name and a UID, nil for none. It removes
// the memory of any other rule with that name, and the number of pods evicted for it.
func (c *Controller) memoryOf(name string, uid types.UID) *memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.memories[name]
	if m == nil || m.uid == uid {
		return m
	}
	delete(c.memories, name)
	c.Forget(m.uid)
	return nil
}
