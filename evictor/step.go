package evictor

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// leasePause is how long an eviction that is due waits while the lease has not
// been renewed in time. Either it is renewed soon, or the process ends.
const leasePause = time.Second

// target is a pod that has to leave now, and why.
type target struct {
	pod      tracker.Pod
	decision decide.Decision
	// now is when that was decided.
	now time.Time
	// open are the reasons that nothing holds.
	open grounds
	// cause is the reason that was confirmed, which the marks on the pod go by, and
	// treatment how the eviction is carried out because of it.
	cause     decide.Reason
	treatment eviction.Treatment
}

// step handles one pod. An error means that it is tried again; a positive
// duration that it is not time yet; zero that it is done or need not be done.
func (e *Evictor) step(ctx context.Context, key tracker.Key) (time.Duration, error) {
	defer e.round.done(key)
	woken := e.woken.Load()
	wait, err := e.look(ctx, key)
	if err == nil && wait > 0 && woken != e.woken.Load() {
		// Whoever woke what is held may have looked before this pod was entered.
		return time.Millisecond, nil
	}
	return wait, err
}

// look decides about a pod and evicts it if nothing holds it.
func (e *Evictor) look(ctx context.Context, key tracker.Key) (time.Duration, error) {
	goal, wait, due := e.due(ctx, key, nil)
	switch {
	case !due:
		e.lines.Leave(e.local.Now(), key)
		return wait, nil
	case e.stillTripped(&goal):
		return heldPause, nil
	case !e.throttle.enter(ctx):
		return 0, nil
	}
	wait, asked, err := e.attempt(ctx, key)
	e.throttle.leave(asked, err)
	return wait, err
}

// attempt makes one attempt to evict a pod, and reports whether the API server was asked
// for that. The next reason is tried where a breaker or a budget holds the first.
func (e *Evictor) attempt(ctx context.Context, key tracker.Key) (wait time.Duration, asked bool, err error) {
	if !e.options.Leads() {
		return leasePause, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.options.AttemptTimeout)
	defer cancel()
	looked := map[objectName]error{}
	var tried []hold
	for {
		goal, wait, err := e.confirmed(ctx, key, looked, tried)
		if err != nil {
			e.lines.StepAside(key)
			e.failed(ctx, key, act.Attempt{}, err)
			return 0, asked, err
		}
		if goal == nil {
			e.lines.Leave(e.local.Now(), key)
			return wait, asked, nil
		}
		leave, held, wait := e.admit(goal)
		switch {
		case held != nil:
			tried = append(tried, *held)
			continue
		case wait > 0:
			return wait, asked, nil
		}
		asked = true
		blocked, err := e.act(ctx, goal, leave)
		if len(blocked) == 0 {
			return 0, asked, err
		}
		tried = append(tried, blocked...)
	}
}

// confirmed makes sure that a pod has to leave: the object that carries the taint
// is looked at itself, and with what is found it is decided anew. If that taint is
// gone, it is the turn of the next. If an object cannot be read, another that is as
// good a reason is tried, unless that would only take more time. Without a target,
// the pod need not leave yet, and has to wait.
func (e *Evictor) confirmed(ctx context.Context, key tracker.Key, looked map[objectName]error, tried []hold) (*target, time.Duration, error) {
	for {
		goal, wait, due := e.due(ctx, key, tried)
		if !due {
			return nil, wait, nil
		}
		at, err := pick(&goal.open, looked)
		if err != nil {
			return nil, 0, err
		}
		cause := goal.open.because[at]
		object := nameOf(cause.Taint.Source)
		if _, done := looked[object]; done {
			goal.cause, goal.treatment = cause, goal.open.treatment(at)
			return &goal, 0, nil
		}
		changed, err := e.confirm.confirm(ctx, object, need{bound: goal.pod.Bound, since: e.book.entered(key)})
		e.PodsChanged(changed)
		switch act.Classify(err) {
		case act.Timeout, act.Throttled, act.Conflict:
			return nil, 0, err
		case act.NoFailure, act.NotFound, act.BudgetExceeded, act.TwoBudgets, act.Denied, act.Invalid, act.Unavailable:
			looked[object] = err
		}
	}
}

// pick returns which reason is the first whose object could be read, or was not tried
// yet. If there is none, it returns what came of the first.
func pick(open *grounds, looked map[objectName]error) (int, error) {
	for i := range open.because {
		if looked[nameOf(open.because[i].Taint.Source)] == nil {
			return i, nil
		}
	}
	return 0, looked[nameOf(open.because[0].Taint.Source)]
}

// due decides about a pod and enters in the book what follows. It returns what to
// do when it has to be done now, else how long to wait, zero for nothing to do. What
// breakers and budgets turned out to hold is tried.
func (e *Evictor) due(ctx context.Context, key tracker.Key, tried []hold) (target, time.Duration, bool) {
	situation, ok := e.tracker.Lookup(key)
	if !ok {
		e.overtaken(ctx, key, act.Gone, nil)
		return target{}, 0, false
	}
	now := e.clock.Now()
	decision := e.decide(now, situation)
	if decision.Verdict == decide.Keep {
		e.keep(ctx, situation.Pod)
		return target{}, 0, false
	}
	e.book.plan(key, decision)
	if decision.Wait > 0 {
		e.book.free(key, true)
		return target{}, decision.Wait, false
	}
	if e.options.Mode == ModeObserve {
		// What is evicted by others is held by nobody.
		return target{}, longestSleep, false
	}
	goal := target{pod: situation.Pod, decision: decision, now: now}
	goal.open = e.gate.pass(now, &goal.pod, decision.Due(now))
	for i := range tried {
		goal.open.without(tried[i])
	}
	if len(goal.open.because) == 0 {
		e.book.hold(key, goal.open.holds, now)
		return target{}, nextLook(now, &decision, goal.open.holds), false
	}
	e.book.free(key, false)
	return goal, 0, true
}

// nextLook returns when a pod is looked at again of which every reason that is due is
// held: at the latest when the next one is due.
func nextLook(now time.Time, decision *decide.Decision, holds []hold) time.Duration {
	again := heldPause
	if due := len(decision.Due(now)); due < len(decision.Because) {
		again = min(again, decision.Because[due].At.Sub(now))
	}
	for i := range holds {
		again = min(again, holds[i].again)
	}
	return again
}

// decide decides about a pod as the mode has it.
func (e *Evictor) decide(now time.Time, situation tracker.Situation) decide.Decision {
	situation.Taints = e.gate.disruption.Recount(situation.Taints)
	decision := e.options.Rules.Decide(now, situation)
	if e.options.Mode != ModeWindow || decision.Verdict == decide.Keep {
		return decision
	}
	return decide.NewDecision(now, e.gate.windowed(&situation.Pod, decision.Because))
}

// keep withdraws the eviction of a pod that exists, if there was one.
func (e *Evictor) keep(ctx context.Context, pod tracker.Pod) {
	if pod.Terminating {
		e.suspect(&pod)
		e.overtaken(ctx, pod.Key, act.Terminating, nil)
		return
	}
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
	if !ok {
		return
	}
	e.metrics.ended(ended.source, ended.method, outcome, e.clock.Now().Sub(ended.at))
	logr.FromContextOrDiscard(ctx).V(1).Info("eviction overtaken", "pod", key.String(), "outcome", outcome.String())
}
