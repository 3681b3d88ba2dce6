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

// overduePause is the time between two looks at which pods are overdue.
const overduePause = 30 * time.Second

// loopReason is the reason of events about loops, on the objects that carry the taints.
const loopReason = "EvictionLoop"

// lookAtNodes records how many nodes there are and how many of them are down. While all are, evictions
// because of that are held (J03). Nothing is recorded before the first list of nodes is complete: a list
// that begins with a node that is down would look like an outage.
func (e *Evictor) lookAtNodes(now time.Time) {
	nodes, down := e.tracker.NodesDown()
	if e.disruption.Observe(now, nodes, down) {
		// What was held is let go, and what was counted counts anew.
		e.PodsChanged(e.tracker.Exposed())
	}
}

// suspect takes in that a pod is on its way out whose eviction may have been due.
func (e *Evictor) suspect(pod *tracker.Pod) {
	now := e.clock.Now()
	e.book.with(pod.Key, func(of *entry) {
		if !of.at.After(now.Add(earlierElsewhere)) {
			e.fit.SawDeletion(now, pod, of.sent || of.marked)
		}
	})
}

// earlierElsewhere is how much earlier others may find a pod due. Kubernetes' controllers
// count from the beginning of the second in which a time is stored, Decide from its end,
// and what they do takes a moment to be seen.
const earlierElsewhere = 2 * time.Second

// checkFit looks whether the mode fits what the cluster does, and says when that changes.
func (e *Evictor) checkFit(ctx context.Context) {
	now := e.clock.Now()
	if local := e.local.Now(); e.options.Mode != ModeReplace && local.Sub(e.looked) >= overduePause {
		e.looked = local
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

// overdue returns how many pods should have been made to leave by others for longer than
// can be waited for.
func (e *Evictor) overdue(now time.Time) int {
	rules := e.options.Rules
	rules.Window = false
	patience := modePatience[e.options.Mode]
	count := 0
	for _, key := range e.book.dueBy(now.Add(-patience)) {
		situation, ok := e.tracker.Lookup(key)
		if !ok {
			continue
		}
		if decision := rules.Decide(now, e.asOthersSee(situation)); decision.Verdict == decide.EvictAt && now.Sub(decision.At) > patience {
			count++
		}
	}
	return count
}

// counts returns the numbers of the book. In mode Observe others make pods leave, so that none is overdue.
func (e *Evictor) counts() counts {
	b, now := e.book, e.clock.Now()
	c := counts{pending: map[tracker.SourceKind]int{}, held: map[tracker.SourceKind]map[checks.Reason]int{}}
	for _, kind := range carrierKinds {
		c.held[kind] = map[checks.Reason]int{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, of := range b.entries {
		c.pending[of.source]++
		if held := b.held.pods[key]; held != nil {
			c.held[of.source][held.holds[0].Reason]++
		} else if e.options.Mode != ModeObserve {
			c.overdue = max(c.overdue, now.Sub(of.at))
		}
	}
	return c
}

// asOthersSee returns a situation without the taints that evict for Tollgate alone.
func (e *Evictor) asOthersSee(situation tracker.Situation) tracker.Situation {
	devices := make([]tracker.TaintedDevice, 0, len(situation.Devices))
	for _, d := range situation.Devices {
		d.Taints = slices.DeleteFunc(slices.Clone(d.Taints), func(taint tracker.Taint) bool {
			if taint.Patch == (tracker.PatchRef{}) {
				return false
			}
			rule, ok := e.tracker.Rule(taint.Source.Name)
			return ok && rule.Native != ""
		})
		devices = append(devices, d)
	}
	situation.Devices = devices
	return situation
}

// dueBy returns the pods whose deadline was before a time.
func (b *book) dueBy(at time.Time) []tracker.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	var keys []tracker.Key
	for key, e := range b.entries {
		if e.at.Before(at) {
			keys = append(keys, key)
		}
	}
	return keys
}

// watchLoops takes in an eviction, and tells of a loop that it turns out to be part of
// (J12).
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
	e.announce.onCarrier(source, e.tracker.UIDOf(source), corev1.EventTypeWarning, loopReason,
		"Because of taint %s %s. %s", goal.cause.Taint.String(), loop, remedy)
	logr.FromContextOrDiscard(ctx).Info("eviction loop", "pod", goal.pod.String(), "taint", goal.cause.Taint.String(), "loop", loop)
}
