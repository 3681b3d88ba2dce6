package rulestatus

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// evaluatePause is the least time between two evaluations of one generation. It
	// bounds what it costs that thousands of pods of a rule change one by one, each
	// of which makes all of them be counted.
	evaluatePause = time.Second
	// idlePause is how long a rule waits while this replica knows too little, or has
	// not renewed its lease in time.
	idlePause = time.Second
)

// step looks at one rule and returns when to look again, zero for when it changes.
func (c *Controller) step(ctx context.Context, name string) time.Duration {
	rule, ok := c.options.Tracker.Rule(name)
	if !ok {
		c.forget(name)
		return 0
	}
	if !c.synced(ctx) || !c.options.Leads() {
		return idlePause
	}
	now := c.now()
	m := c.remember(&rule, now)
	if written := c.options.Written(&rule); (!written || m.unwritten) && !over(&rule) {
		m.seen, m.unwritten = now.local, !written
		if !written && rule.Taint.Effect == resourcev1.DeviceTaintEffectNone {
			return idlePause // What it would do is said once, and is not known yet.
		}
	}
	if wait := m.hold(now); wait > 0 {
		return wait
	}
	impact, ok := c.options.Tracker.Impact(name)
	if !ok || impact.Rule.UID != m.uid || impact.Rule.Generation != m.generation {
		return evaluatePause // It has just changed, or is not known now.
	}
	// What was being forgotten while it was counted was not counted: Synced says so
	// from before the first of it goes.
	if !c.synced(ctx) {
		return idlePause
	}
	held := heldPods{}
	held.pods, held.reason, held.why = c.options.Held(m.uid)
	v := conditions(now.server, &input{
		held:       held,
		heldOnly:   c.options.HeldOnly,
		rule:       &impact.Rule,
		tally:      c.tally(&impact),
		evicted:    m.carried + c.options.Evicted(m.uid),
		told:       m.told,
		unfinished: m.unfinished,
		stood:      now.since(m.seen),
		written:    now.since(m.written),
		previewed:  now.since(m.previewed),
	})
	if v.write {
		return c.write(ctx, m, name, v)
	}
	m.told, m.evaluated = true, now.local
	return v.again
}

// over reports whether the status says of this generation that its eviction is over: a
// leader that comes later knows less at first, and does not take that back.
func over(rule *tracker.Rule) bool {
	stored, _ := ownConditions(rule.Conditions)
	return stored != nil && stored.ObservedGeneration == rule.Generation && stored.Status == metav1.ConditionFalse
}

// tally counts the pods of a rule. Who evicts one is asked after the tracker, and for
// how many were evicted later still: one that leaves in between is then found twice
// rather than not at all. One whose deletion the watch told of before the answer came
// is gone for the tracker and evicted by nobody yet; it is pending.
func (c *Controller) tally(impact *tracker.Impact) tally {
	var unanswered []tracker.Key
	if impact.Rule.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute {
		unanswered = c.options.Unanswered(impact.Rule.UID)
	}
	return tallyOf(impact, c.options.Decide, unanswered)
}

// synced reports whether nothing is missing in what the tracker says, and says so once
// when something is: too few pods would read as all of them evicted.
func (c *Controller) synced(ctx context.Context) bool {
	synced := c.options.Synced()
	if c.silent.Swap(!synced) == synced {
		logr.FromContextOrDiscard(ctx).Info(c.options.Kind.noun()+" status waits for pods and claims", "waiting", !synced)
	}
	return synced
}

func (c *Controller) now() moment {
	return moment{server: c.options.Clock.Now(), local: c.options.Local.Now()}
}

// write writes the status of a rule.
func (c *Controller) write(ctx context.Context, m *memory, name string, v verdict) time.Duration {
	//nolint:loggercheck // The key is rule or patch.
	log := logr.FromContextOrDiscard(ctx).WithValues(c.options.Kind.noun(), name, "uid", m.uid)
	if !c.options.Leads() {
		return idlePause
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.AttemptTimeout)
	defer cancel()
	answer, err := c.options.Applier.Apply(ctx, name, m.uid, v.conditions)
	outcome := outcomeOf(err)
	c.options.Metrics.writes.WithLabelValues(string(outcome)).Inc()
	now := c.now()
	if err != nil {
		return c.failed(log, m, name, outcome, err, now)
	}
	c.backoff.Forget(name)
	c.unserved.Store(false)
	m.told, m.unfinished, m.failure, m.notBefore = true, v.unfinished, "", time.Time{}
	m.written, m.evaluated = now.local, now.local
	if v.previews {
		m.previewed = now.local
	}
	c.options.PodsChanged(c.options.Tracker.RefreshRule(answer, "", now.server))
	log.V(1).Info("wrote "+c.options.Kind.noun()+" status", "conditions", len(v.conditions), "generation", m.generation)
	return min(writePause, v.again)
}

// failed returns when to try again. There is no end to trying. The log is told once
// of each kind of failure in a row, once for all rules that there is no status to
// write, and always where it wants to know all.
func (c *Controller) failed(log logr.Logger, m *memory, name string, outcome outcome, err error, now moment) time.Duration {
	wait := c.backoff.When(name)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		// Webhooks may ask for anything.
		wait = max(wait, min(time.Duration(seconds)*time.Second, longestDelay))
	}
	if outcome == outcomeDenied {
		wait = max(wait, writePause) // It takes a human to change that (F10).
	}
	m.notBefore = now.local.Add(wait)
	if outcome == m.failure || outcome == outcomeGone || outcome == outcomeNotServed && c.unserved.Swap(true) {
		log = log.V(1)
	}
	m.failure = outcome
	log.Info("cannot write "+c.options.Kind.noun()+" status yet", "outcome", outcome, "error", err.Error(), "again", wait.String())
	return wait
}
