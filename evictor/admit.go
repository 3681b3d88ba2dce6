package evictor

import (
	"time"

	"github.com/tollgate-dev/tollgate/evictor/breaker"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/evictor/ratelimit"
	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// breakers bound how many pods leave in a window. It must not block.
type breakers interface {
	Ask(policies []*eviction.Policy, cause breaker.Cause) breaker.Answer
}

// shut are the breakers of a program without any: what a policy bounds does not leave.
type shut struct{}

func (shut) Ask(policies []*eviction.Policy, _ breaker.Cause) breaker.Answer {
	return breaker.Answer{HeldBy: policies[0]}
}

// passage is leave for one pod to go, by all paces and breakers that bind it, and by the
// door of its budget.
type passage struct {
	ticket ratelimit.Ticket
	permit *breaker.Permit
	// over says that the budget of the pod is not asked any more; nil for who has none.
	over func()
	// bound are the policies whose breakers the permit is of.
	bound []*eviction.Policy
}

// settle ends what the leave was for, and gives back what was not used. Where it is not
// known whether the pod went, it has been.
func (p passage) settle(now time.Time, gone bool) {
	p.ticket.Settle(now, gone)
	p.permit.Settle(gone)
	if p.over != nil {
		p.over()
	}
}

// stepAside ends what the leave was for before it began. The pod keeps its turn.
func (p passage) stepAside(now time.Time) {
	p.ticket.StepAside(now)
	p.settle(now, false)
}

// admit asks for leave for a pod to go. A breaker that has no room holds it; a positive
// duration says that it is not its turn yet.
func (e *Evictor) admit(goal *target) (passage, *hold, time.Duration) {
	key, now := goal.pod.Key, e.local.Now()
	ticket, goes := e.turn(now, goal)
	if !goes {
		e.book.free(key, true)
		return passage{}, nil, heldPause
	}
	leave, before := passage{ticket: ticket}, e.book.spent(key)
	if budget := e.budgetOf(goal); budget != "" {
		if !e.throttle.budgets.enter(now, budget, key) {
			// What it says is not known yet: if it held the pod, it still does.
			leave.stepAside(now)
			return passage{}, nil, heldPause
		}
		leave.over = func() { e.PodsChanged(e.throttle.budgets.leave(e.local.Now(), budget, e.book.pending)) }
	}
	leave.bound = before.unpaid(goal.treatment.Breakers, instantOf(now))
	if len(leave.bound) == 0 {
		if len(goal.treatment.Breakers) > 0 {
			e.book.free(key, true)
		}
		before.ticket.TakeBack(now)
		return leave, nil, 0
	}
	answer := e.options.Breakers.Ask(leave.bound, causeOf(&goal.cause))
	if answer.HeldBy != nil {
		leave.settle(now, false)
		held := newHold(&goal.cause, HoldBreakerTripped, answer.HeldBy)
		return passage{}, &held, 0
	}
	e.book.free(key, true)
	if answer.Permit == nil {
		leave.stepAside(now)
		return passage{}, nil, max(answer.Wait, time.Millisecond)
	}
	leave.permit = answer.Permit
	before.ticket.TakeBack(now)
	return leave, nil, 0
}

// turn asks whether it is a pod's turn in the lines of its policies.
func (e *Evictor) turn(now time.Time, goal *target) (ticket ratelimit.Ticket, goes bool) {
	if len(goal.treatment.Paces) > 0 {
		return e.lines.Ask(now, goal.pod.Key, ratelimit.LimitsOf(goal.treatment.Paces))
	}
	if len(goal.open.because) == 1 {
		// With more reasons the place may be kept for another.
		e.lines.Leave(now, goal.pod.Key)
	}
	return ratelimit.Ticket{}, true
}

// stillTripped reports whether a breaker that held a pod when it was last looked at
// still does, for every reason. That is told without a request, so that pods that are
// held for hours cost the API server nothing. It may be another breaker by now.
func (e *Evictor) stillTripped(goal *target) bool {
	if !e.book.tripped(goal.pod.Key) {
		return false
	}
	before, now := e.book.spent(goal.pod.Key), instantOf(e.local.Now())
	holds := make([]hold, 0, len(goal.open.because))
	for i := range goal.open.because {
		bound := before.unpaid(goal.open.treatment(i).Breakers, now)
		if len(bound) == 0 {
			return false
		}
		answer := e.options.Breakers.Ask(bound, causeOf(&goal.open.because[i]))
		answer.Permit.Settle(false)
		if answer.HeldBy == nil {
			return false
		}
		holds = append(holds, newHold(&goal.open.because[i], HoldBreakerTripped, answer.HeldBy))
	}
	for i := range holds {
		goal.open.without(holds[i])
	}
	e.book.hold(goal.pod.Key, goal.open.holds, goal.now)
	return true
}

func causeOf(reason *decide.Reason) breaker.Cause {
	return breaker.Cause{Carrier: reason.Taint.Source, Patch: reason.Taint.Patch, Key: reason.Taint.Key, Effect: reason.Taint.Effect}
}
