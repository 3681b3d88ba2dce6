package rulestatus

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// evaluatePause is the least time between two evaluations of one generation. It
	// bounds the cost of events: when thousands of pods of a rule change one by one, each
	// event makes the controller count all of them.
	evaluatePause = time.Second
	// idlePause is how long a rule waits while the tracker is not synced, or while this
	// replica may not hold the lease.
	idlePause = time.Second
)

// reconcile evaluates one rule, and writes its status if that differs.
func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	rule, ok := c.Tracker.Rule(name)
	if !ok {
		c.memoryOf(name, "") // Removes it.
		return 0, nil
	}
	if !c.synced(ctx) {
		return idlePause, nil
	}
	now := c.now()
	m := c.remember(&rule, now)
	if written := c.Written(&rule); (!written || m.unwritten) && !over(&rule) {
		m.seen, m.unwritten = now.local, !written
		if !written && rule.Taint.Effect == resourcev1.DeviceTaintEffectNone {
			return idlePause, nil // The summary of its pods is written once, and not all pods are known yet.
		}
	}
	if wait := m.notBefore.Sub(now.local); wait > 0 {
		return 0, controller.DelayError(wait)
	}
	if wait := m.pause(now); wait > 0 {
		return wait, nil
	}
	impact, ok := c.Tracker.Impact(name)
	if !ok || impact.Rule.UID != m.uid || impact.Rule.Generation != m.generation {
		return evaluatePause, nil // The rule has just changed, or the devices are not known.
	}
	// A tracker that stopped being synced meanwhile may lack pods.
	if !c.synced(ctx) {
		return idlePause, nil
	}
	v := conditions(now, c.inputOf(m, &impact))
	if v.write {
		return c.write(ctx, m, name, v)
	}
	m.told, m.evaluated = true, now.local
	return v.again, nil
}

// inputOf returns the values from which the conditions of a rule are computed. The tracker
// comes before the unanswered and these before the evicted pods: a pod that is evicted
// meanwhile is counted twice rather than not at all. The tracker may have removed a pod
// before the answer to its deletion; it is unanswered then.
func (c *Controller) inputOf(m *memory, impact *tracker.Impact) *input {
	in := &input{memory: m, rule: &impact.Rule, heldOnly: c.HeldOnly}
	in.held.pods, in.held.reason, in.held.why = c.Held(m.uid)
	var unanswered []tracker.Key
	if in.rule.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute {
		unanswered = c.Unanswered(m.uid)
	}
	in.tally = tallyOf(impact, c.Decide, unanswered)
	in.evicted = m.carried + c.Evicted(m.uid)
	return in
}

// over reports whether the status of this generation says that its eviction is over. A new
// leader, which has fewer facts at first, does not revoke that.
func over(rule *tracker.Rule) bool {
	stored := storedCondition(rule, evictionInProgress)
	return stored != nil && stored.ObservedGeneration == rule.Generation && stored.Status == metav1.ConditionFalse
}

// synced reports whether the tracker has all objects, and logs each change of that. While
// pods are missing, the status would say that they are evicted.
func (c *Controller) synced(ctx context.Context) bool {
	synced := c.Synced()
	if c.silent.Swap(!synced) == synced {
		logr.FromContextOrDiscard(ctx).Info(c.Kind+" status waits for pods and claims", "waiting", !synced)
	}
	return synced
}

func (c *Controller) now() moment {
	return moment{server: c.Clock.Now(), local: c.Local.Now()}
}

// write writes the status of a rule. A write that fails is retried for ever. The log names
// each kind of failure in a row once, that no status is served once for all rules, and all
// failures at a higher verbosity.
func (c *Controller) write(ctx context.Context, m *memory, name string, v verdict) (time.Duration, error) {
	if !c.Leads() {
		return idlePause, nil
	}
	//nolint:loggercheck // The key is rule or patch.
	log := logr.FromContextOrDiscard(ctx).WithValues(c.Kind, name, "uid", m.uid)
	answer, err := c.Applier.Apply(ctx, name, m.uid, v.conditions)
	outcome := outcomeOf(err)
	c.Metrics.writes.WithLabelValues(outcome).Inc()
	now := c.now()
	if err != nil {
		wait := c.Backoff(name, err)
		if outcome == string(act.Denied) {
			wait = max(wait, writePause) // Only a user can change permissions (F10).
		}
		if outcome == m.failure || outcome == outcomeGone || outcome == outcomeNotServed && c.unserved.Swap(true) {
			log = log.V(1)
		}
		m.notBefore, m.failure = now.local.Add(wait), outcome
		log.Info("cannot write "+c.Kind+" status yet", "outcome", outcome, "error", err.Error(), "again", wait.String())
		return 0, controller.DelayError(wait)
	}
	c.unserved.Store(false)
	m.told, m.unfinished, m.failure, m.notBefore = true, v.unfinished, "", time.Time{}
	m.written, m.evaluated = now.local, now.local
	if v.previews {
		m.previewed = now.local
	}
	c.PodsChanged(c.Tracker.RefreshRule(answer, "", now.server))
	log.V(1).Info("wrote "+c.Kind+" status", "conditions", len(v.conditions), "generation", m.generation)
	return min(writePause, v.again), nil
}
