package evictor

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// target is a pod that has to leave now.
type target struct {
	pod      tracker.Pod
	decision decide.Decision
	// pending is a copy of the pending eviction.
	pending pendingEviction
	// now is the time of the decision.
	now time.Time
	// due are the reasons that are due, the earliest first. cause is the one because of which
	// the pod is evicted, nil until it is known.
	due   []dueReason
	cause *dueReason
}

// dueReason is a reason that is due, and the eviction because of it, which the checks judge.
type dueReason struct {
	checks.Eviction

	// held is the hold of the pod for this reason; nil for none.
	held *checks.Hold
}

// heldReasons are the reasons that the checks held in one attempt.
type heldReasons map[decide.Origin]*checks.Hold

// process decides about a pod, and makes an attempt to evict it unless it is held. If a breaker
// or a budget holds the first reason, the attempt goes on with the next. It returns after how
// long to process the pod again, zero for never.
func (e *Evictor) process(ctx context.Context, key tracker.Key) (wait time.Duration, err error) {
	goal, wait := e.due(ctx, key, nil)
	switch {
	case goal == nil:
		e.rates.Leave(e.local.Now(), key, false)
		return wait, nil
	case !e.throttle.enter(ctx):
		return 0, nil
	}
	var asked bool                                  // Whether the API server was asked to evict the pod.
	defer func() { e.throttle.leave(asked, err) }() // Also after a panic.
	ctx, cancel := context.WithTimeout(ctx, e.options.AttemptTimeout)
	defer cancel()
	ctx, end := e.traceAttempt(ctx, goal, false)
	defer end()
	looked, held := map[tracker.Source]error{}, e.state.postponed(key)
	for goal != nil {
		goal, wait, err = e.confirmed(ctx, goal, looked, held)
		if err != nil {
			e.rates.StepAside(e.local.Now(), key)
			e.failed(ctx, key, act.Attempt{}, err)
			return 0, err
		}
		if goal == nil {
			break
		}
		e.traceCause(ctx, goal)
		pass, answer := e.granting.Ask(e.now(), &goal.cause.Eviction)
		switch {
		case answer.Wait > 0:
			if !goal.cause.AsksBudget { // Else a budget that held the pod may hold it still.
				e.state.free(key, true)
			}
			e.state.postpone(key, held)
			traceResult(ctx, resultWaiting)
			return answer.Wait, nil
		case answer.Hold != nil:
			held[goal.cause.Origin()] = answer.Hold
			traceHold(ctx, goal.cause, answer.Hold)
		default:
			asked = true
			if blocked, err := e.actTraced(ctx, goal, pass, held); !blocked {
				return 0, err
			}
		}
		goal, wait = e.due(ctx, key, held)
	}
	e.rates.Leave(e.local.Now(), key, false)
	return wait, nil
}

// confirmed reads the object that carries the taint, and decides about the pod again. If the
// taint is gone, it continues with the next reason. If the object cannot be read, it tries the
// object of another reason, unless the API server is slow or overloaded. It returns nil, and how
// long to wait, if the pod need not leave now.
func (e *Evictor) confirmed(ctx context.Context, goal *target, looked map[tracker.Source]error, held heldReasons) (*target, time.Duration, error) {
	for {
		cause, err := pick(goal, looked)
		if err != nil {
			return nil, 0, err
		}
		object := cause.Taint.Source.Named()
		if _, done := looked[object]; done {
			goal.cause = cause
			return goal, 0, nil
		}
		key := goal.pod.Key
		changed, err := e.confirmTraced(ctx, object, freshness{Bound: goal.pod.Bound, Since: goal.pending.entered})
		e.PodsChanged(changed)
		if failure := act.Classify(err); failure == act.Timeout || failure == act.Throttled || failure == act.Conflict {
			return nil, 0, err
		}
		looked[object] = err
		var wait time.Duration
		if goal, wait = e.due(ctx, key, held); goal == nil {
			return nil, wait, nil
		}
	}
}

// pick returns the first reason that is not held and whose object was read, or was not tried yet.
// If there is none, it returns the first error.
func pick(goal *target, looked map[tracker.Source]error) (*dueReason, error) {
	var first error
	for i := range goal.due {
		reason := &goal.due[i]
		if reason.held != nil {
			continue
		}
		err := looked[reason.Taint.Source.Named()]
		if err == nil {
			return reason, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// due decides about a pod and records the result. It returns the pod if it has to leave now and
// at least one reason is not held. Otherwise it returns nil and how long to wait, zero for
// nothing to do. held are the reasons that earlier steps of the attempt found to be held.
func (e *Evictor) due(ctx context.Context, key tracker.Key, held heldReasons) (*target, time.Duration) {
	situation, ok := e.tracker.Lookup(key)
	if !ok {
		e.overtaken(ctx, key, act.Gone, nil)
		return nil, 0
	}
	now := e.clock.Now()
	decision := e.decide(now, situation)
	if decision.Verdict == decide.Keep {
		e.keep(ctx, situation.Pod)
		return nil, 0
	}
	planned := e.state.plan(key, decision)
	if decision.Wait > 0 {
		e.state.free(key, true)
		traceResult(ctx, resultNotDue)
		return nil, decision.Wait
	}
	if e.options.Mode == ModeObserve {
		return nil, longestSleep // Kubernetes evicts the pod.
	}
	goal := &target{pod: situation.Pod, decision: decision, pending: planned, now: now}
	goes, released := e.checkReasons(goal, held)
	if goes {
		e.state.free(key, released)
		return goal, 0
	}
	// All due reasons are held. The pod is checked again at the latest when its next reason is due.
	holds, again := make([]hold, 0, len(goal.due)), checks.Recheck
	for i := range goal.due {
		reason := &goal.due[i]
		holds = append(holds, hold{reason.held, reason.Taint.Source, reason.Taint.Author(), reason.Taint.String()})
		again = min(again, reason.held.Again)
	}
	if later := len(goal.due); later < len(decision.Because) {
		again = min(again, decision.Because[later].At.Sub(now))
	}
	e.state.hold(key, holds, now)
	traceResult(ctx, resultHeld)
	return nil, again
}

// checkReasons asks the standing checks about each reason that is due, and reports whether at
// least one is not held. released is true if a breaker held the pod for that reason and does not
// any more.
//
// If a breaker held the pod, checkReasons also asks the breakers, for each reason until one is
// not held. That needs no request, so pods that are held for hours put no load on the API server.
func (e *Evictor) checkReasons(goal *target, held heldReasons) (goes, released bool) {
	due := goal.decision.Due(goal.now)
	set := e.options.Policies()
	var subject eviction.Subject
	if set.Len() > 0 {
		subject = decide.SubjectOf(&goal.pod, e.options.NamespaceLabels)
	}
	tripped := e.state.tripped(goal.pod.Key)
	goal.due = make([]dueReason, len(due))
	for i := range due {
		reason := &goal.due[i]
		reason.Reason, reason.Pod = &due[i], &goal.pod
		reason.Treatment, reason.Unknown = decide.Treat(set, &due[i], &subject)
		reason.AsksBudget = goal.method(reason) == act.Evict
		_, answer := e.standing.Ask(checks.Now{Server: goal.now}, &reason.Eviction)
		reason.held = answer.Hold
		if reason.held == nil {
			reason.held = held[reason.Origin()]
		}
		if reason.held == nil && tripped && !goes {
			now := e.now()
			answer := e.options.Breaker(now, &reason.Eviction)
			if answer.Undo != nil {
				answer.Undo(now, checks.Stayed)
			}
			reason.held = answer.Hold
			released = reason.held == nil && len(reason.Treatment.Breakers) > 0
		}
		goes = goes || reason.held == nil
	}
	return goes, released
}

// now returns the time by both clocks.
func (e *Evictor) now() checks.Now { return checks.Now{Server: e.clock.Now(), Local: e.local.Now()} }

// decide decides about a pod in the mode of the evictor. In mode Window, Kubernetes' own controllers
// evict because of all reasons for which the pod has no window. A reason whose policy cannot be
// determined yet is kept; the checks hold it when it is due.
func (e *Evictor) decide(now time.Time, situation tracker.Situation) decide.Decision {
	situation.Taints = e.disruption.Recount(situation.Taints)
	decision := e.options.Rules.Decide(now, situation)
	if e.options.Mode != ModeWindow || decision.Verdict == decide.Keep {
		return decision
	}
	set, subject := e.options.Policies(), decide.SubjectOf(&situation.Pod, e.options.NamespaceLabels)
	return decide.NewDecision(now, slices.DeleteFunc(decision.Because, func(reason decide.Reason) bool {
		treatment, err := decide.Treat(set, &reason, &subject)
		return err == nil && (treatment.Policy == nil || treatment.Policy.WindowSeconds == nil)
	}))
}

// keep cancels the eviction of an existing pod, if there is one.
func (e *Evictor) keep(ctx context.Context, pod tracker.Pod) {
	if pod.Terminating {
		now := e.clock.Now()
		e.state.with(pod.Key, func(of *pendingEviction) {
			if !of.at.After(now.Add(earlierElsewhere)) { // It was due.
				e.fit.SawDeletion(now, &pod, of.sent || of.marked)
			}
		})
		e.overtaken(ctx, pod.Key, act.Terminating, nil)
		return
	}
	traceResult(ctx, resultKept)
	ended, _, ok := e.state.close(pod.Key, act.Unfinished, nil)
	if !ok {
		return
	}
	if e.options.Mode != ModeObserve {
		e.announce.cancelled(pod.Key, ended.source)
	}
	logr.FromContextOrDiscard(ctx).V(1).Info("cancelled eviction", "pod", pod.String())
}

// overtaken ends the eviction of a pod that is gone or terminating. learn updates the tracker, nil
// if the tracker knows already.
func (e *Evictor) overtaken(ctx context.Context, key tracker.Key, outcome act.Outcome, learn func(tracker.Key)) {
	ended, outcome, ok := e.state.close(key, outcome, learn)
	traceResult(ctx, string(outcome))
	if !ok {
		return
	}
	e.metrics.ended(ended.source, ended.method, outcome, e.clock.Now().Sub(ended.at))
	logr.FromContextOrDiscard(ctx).V(1).Info("eviction overtaken", "pod", key.String(), "outcome", outcome)
}
