package evictor

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/tracker"
)

// overduePause is the minimum time between two counts of overdue pods.
const overduePause = 30 * time.Second

// loopReason is the reason of events about eviction loops, on the objects that carry the taints.
const loopReason = "EvictionLoop"

// observeNodes records the number of nodes, and how many are down. While all are down, evictions
// because of that are held (J03). It must not be called before the first list of nodes is complete:
// a list that begins with a node that is down would look like an outage.
func (e *Evictor) observeNodes(now time.Time) {
	nodes, down := e.tracker.NodesDown()
	if e.disruption.Observe(now, nodes, down) {
		// Holds end, and the times of taints start again.
		e.PodsChanged(e.tracker.Exposed())
	}
}

// earlierElsewhere is how much earlier a pod may be due for Kubernetes' controllers. They count
// from the beginning of the second in which a time is stored, and Decide from its end; and their
// deletions are seen with a delay.
const earlierElsewhere = 2 * time.Second

// checkFit checks whether the mode fits the cluster, and reports a change.
func (e *Evictor) checkFit(ctx context.Context) {
	now := e.clock.Now()
	if local := e.local.Now(); e.options.Mode != ModeReplace && local.Sub(e.overdueCounted) >= overduePause {
		e.overdueCounted = local
		e.fit.SawOverdue(now, e.overdue(now))
	}
	finding, changed := e.fit.Changed(now)
	if !changed {
		return
	}
	e.announce.withheld.Store(finding == BuiltInActive)
	for _, f := range ModeFindings {
		value := 0.0
		if f == finding {
			value = 1
		}
		e.metrics.misfit.WithLabelValues(f.String()).Set(value)
	}
	logr.FromContextOrDiscard(ctx).Info("fit of the eviction mode changed", "mode", e.options.Mode, "finding", finding.String(), "message", finding.Message())
	e.options.FitChanged(finding)
}

// overdue returns the number of pods that Kubernetes' controllers should have evicted longer ago
// than the patience of the mode.
func (e *Evictor) overdue(now time.Time) int {
	rules := e.options.Rules
	rules.Window = false
	patience := modePatience[e.options.Mode]
	var due []tracker.Key
	e.state.mu.Lock()
	for key, of := range e.state.pending {
		if of.at.Before(now.Add(-patience)) {
			due = append(due, key)
		}
	}
	e.state.mu.Unlock()
	count := 0
	for _, key := range due {
		situation, ok := e.tracker.Lookup(key)
		if !ok {
			continue
		}
		// Others do not see the taints that only Tollgate evicts for.
		situation.Devices = slices.Clone(situation.Devices)
		for i := range situation.Devices {
			d := &situation.Devices[i]
			d.Taints = slices.DeleteFunc(slices.Clone(d.Taints), func(taint tracker.Taint) bool {
				if taint.Patch == (tracker.PatchRef{}) {
					return false
				}
				rule, ok := e.tracker.Rule(taint.Source.Name)
				return ok && rule.Native != ""
			})
		}
		if decision := rules.Decide(now, situation); decision.Verdict == decide.EvictAt && now.Sub(decision.At) > patience {
			count++
		}
	}
	return count
}

// counts returns the numbers of pending evictions. In mode Observe, Kubernetes evicts pods, so none is
// overdue.
func (e *Evictor) counts() counts {
	s, now := e.state, e.clock.Now()
	c := counts{pending: map[tracker.SourceKind]int{}, held: map[tracker.SourceKind]map[checks.Reason]int{}}
	for _, kind := range carrierKinds {
		c.held[kind] = map[checks.Reason]int{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, of := range s.pending {
		c.pending[of.source]++
		if held := s.held.pods[key]; held != nil {
			c.held[of.source][held.holds[0].Reason]++
		} else if e.options.Mode != ModeObserve {
			c.overdue = max(c.overdue, now.Sub(of.at))
		}
	}
	return c
}

// watchLoops records an eviction, and reports the loop that it is part of, if any (J12).
func (e *Evictor) watchLoops(ctx context.Context, goal *target, now time.Time) {
	loop, found := e.loops.Evicted(now, &goal.pod, &goal.cause.Taint)
	if !found {
		return
	}
	e.metrics.loops.Inc()
	remedy := "They are evicted more slowly from now on"
	if goal.cause.Treatment.Policy == nil {
		remedy = "No EvictionPolicy decides about them, so they are not slowed down"
	}
	source := goal.cause.Taint.Author()
	e.announce.recorder(source.Kind).Eventf(reference(source, e.tracker.UIDOf(source)), corev1.EventTypeWarning, loopReason,
		"Because of taint %s %s. %s", goal.cause.Taint.String(), loop, remedy)
	logr.FromContextOrDiscard(ctx).Info("eviction loop", "pod", goal.pod.String(), "taint", goal.cause.Taint.String(), "loop", loop)
}
