package evictor

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/confirm"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// target is a pod that has to leave now.
type target struct {
	pod      tracker.Pod
	decision decide.Decision
	// entry is the eviction as the book has it.
	entry entry
	// now is the time of the decision.
	now time.Time
	// due are the reasons that are due, the earliest first, and cause the one that the pod is
	// evicted for, once it is known.
	due   []dueReason
	cause *dueReason
}

// dueReason is a reason to leave that is due, and the eviction because of it, as checks are asked about it.
type dueReason struct {
	checks.Eviction

	// held is why the pod is held in spite of it; nil if it is not.
	held *checks.Hold
}

// heldReasons are the reasons that the checks turned out to hold, in one attempt.
type heldReasons map[decide.Origin]*checks.Hold

// look decides about a pod, and makes an attempt to evict it if nothing holds it. The next reason is
// tried where a breaker or a budget holds the first.
func (e *Evictor) look(ctx context.Context, key tracker.Key) (wait time.Duration, err error) {
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
	ctx, end := e.traceAttempt(ctx, goal)
	defer end()
	looked, held := map[tracker.Source]error{}, e.book.postponed(key)
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
				e.book.free(key, true)
			}
			e.book.postpone(key, held)
			traceResult(ctx, resultWaiting)
			return answer.Wait, nil
		case answer.Hold != nil:
			held[goal.cause.Origin()] = answer.Hold
			traceHold(ctx, goal.cause, answer.Hold)
		default:
			asked = true
			if blocked, err := e.act(ctx, goal, pass, held); !blocked {
				return 0, err
			}
		}
		goal, wait = e.due(ctx, key, held)
	}
	e.rates.Leave(e.local.Now(), key, false)
	return wait, nil
}

// confirmed makes sure that a pod has to leave: it reads the object that carries the taint, and
// decides again with what it found. If that taint is gone, it is the turn of the next. If an
// object cannot be read, another that is as good a reason is tried, unless that would only take more
// time. Without a target the pod need not leave yet, and has to wait.
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
		changed, err := e.confirmTraced(ctx, object, confirm.Need{Bound: goal.pod.Bound, Since: goal.entry.entered})
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

// pick returns the first reason that nothing holds whose object could be read, or was not tried
// yet. If there is none, it returns the error of the first.
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

// due decides about a pod and records what follows. It returns the pod if it has to leave now and
// something lets it; else nil and how long to wait, zero for nothing to do. Held are the reasons
// that turned out to be held.
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
	entry := e.book.plan(key, decision)
	if decision.Wait > 0 {
		e.book.free(key, true)
		traceResult(ctx, resultNotDue)
		return nil, decision.Wait
	}
	if e.options.Mode == ModeObserve {
		return nil, longestSleep // Others evict the pod.
	}
	goal := &target{pod: situation.Pod, decision: decision, entry: entry, now: now}
	goes, released := e.checkReasons(goal, held)
	if !goes {
		e.book.hold(key, goal.holds(), now)
		traceResult(ctx, resultHeld)
		return nil, goal.nextLook()
	}
	e.book.free(key, released)
	return goal, 0
}

// checkReasons asks the standing checks about each reason that is due, and reports whether the
// pod has to leave because of at least one. Released is true if a breaker held the pod for that one and
// does so no longer.
//
// A breaker that held the pod is asked too, for every reason until one goes. That takes no
// request, so that pods that are held for hours cost the API server nothing. It may be another
// breaker by now.
func (e *Evictor) checkReasons(goal *target, held heldReasons) (goes, released bool) {
	due := goal.decision.Due(goal.now)
	set := e.options.Policies()
	var subject eviction.Subject
	if set.Len() > 0 {
		subject = decide.SubjectOf(&goal.pod, e.options.NamespaceLabels)
	}
	tripped := e.book.tripped(goal.pod.Key)
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
			reason.held = e.stillTripped(reason)
			released = reason.held == nil && len(reason.Treatment.Breakers) > 0
		}
		goes = goes || reason.held == nil
	}
	return goes, released
}

// stillTripped returns the hold of a breaker on a pod that a breaker held before; nil for none.
func (e *Evictor) stillTripped(reason *dueReason) *checks.Hold {
	now := e.now()
	answer := e.options.Breaker(now, &reason.Eviction)
	if answer.Undo != nil {
		answer.Undo(now, checks.Stayed)
	}
	return answer.Hold
}

// now returns the time by both clocks.
func (e *Evictor) now() checks.Now { return checks.Now{Server: e.clock.Now(), Local: e.local.Now()} }

// holds returns what holds the pod, for each reason that is held.
func (t *target) holds() []hold {
	holds := make([]hold, 0, len(t.due))
	for i := range t.due {
		if reason := &t.due[i]; reason.held != nil {
			holds = append(holds, hold{reason.held, reason.Taint.Source, reason.Taint.Author(), reason.Taint.String()})
		}
	}
	return holds
}

// nextLook returns when a pod is checked again of which every reason that is due is held: at
// the latest when the next reason is due.
func (t *target) nextLook() time.Duration {
	again := checks.Recheck
	for i := range t.due {
		again = min(again, t.due[i].held.Again)
	}
	if later := len(t.due); later < len(t.decision.Because) {
		again = min(again, t.decision.Because[later].At.Sub(t.now))
	}
	return again
}

// decide decides about a pod as the mode has it.
func (e *Evictor) decide(now time.Time, situation tracker.Situation) decide.Decision {
	situation.Taints = e.disruption.Recount(situation.Taints)
	decision := e.options.Rules.Decide(now, situation)
	if e.options.Mode != ModeWindow || decision.Verdict == decide.Keep {
		return decision
	}
	return decide.NewDecision(now, e.windowed(&situation.Pod, decision.Because))
}

// windowed returns the reasons of a pod for which it was given a window: in mode Window all
// others are left to Kubernetes' own controllers. A reason of which that cannot be told yet is kept,
// and held when it is due.
func (e *Evictor) windowed(pod *tracker.Pod, because []decide.Reason) []decide.Reason {
	set, subject := e.options.Policies(), decide.SubjectOf(pod, e.options.NamespaceLabels)
	return slices.DeleteFunc(because, func(reason decide.Reason) bool {
		treatment, err := decide.Treat(set, &reason, &subject)
		return err == nil && (treatment.Policy == nil || treatment.Policy.WindowSeconds == nil)
	})
}

// keep withdraws the eviction of a pod that exists, if there was one.
func (e *Evictor) keep(ctx context.Context, pod tracker.Pod) {
	if pod.Terminating {
		e.suspect(&pod)
		e.overtaken(ctx, pod.Key, act.Terminating, nil)
		return
	}
	traceResult(ctx, resultKept)
	ended, _, ok := e.book.close(pod.Key, act.Unfinished, nil)
	if !ok {
		return
	}
	if e.options.Mode != ModeObserve {
		e.announce.cancelled(pod.Key, ended.source)
	}
	logr.FromContextOrDiscard(ctx).V(1).Info("cancelled eviction", "pod", pod.String())
}

// overtaken ends the eviction of a pod that is gone or on its way out, which the
// tracker learns by learn if it does not know yet.
func (e *Evictor) overtaken(ctx context.Context, key tracker.Key, outcome act.Outcome, learn func(tracker.Key)) {
	ended, outcome, ok := e.book.close(key, outcome, learn)
	traceResult(ctx, string(outcome))
	if !ok {
		return
	}
	e.metrics.ended(ended.source, ended.method, outcome, e.clock.Now().Sub(ended.at))
	logr.FromContextOrDiscard(ctx).V(1).Info("eviction overtaken", "pod", key.String(), "outcome", outcome)
}
