package evictor

import (
	"time"

	"github.com/tollgate-dev/tollgate/evictor/breaker"
	"github.com/tollgate-dev/tollgate/evictor/pace"
	"github.com/tollgate-dev/tollgate/policy/evicting"
)

// breakers bound how many pods leave in a window. It must not block.
type breakers interface {
	Ask(policies []*evicting.Policy, cause breaker.Cause) breaker.Answer
}

// shut are the breakers of a program without any: what a policy bounds does not leave.
type shut struct{}

func (shut) Ask(policies []*evicting.Policy, _ breaker.Cause) breaker.Answer {
	return breaker.Answer{HeldBy: policies[0]}
}

// passage is leave for one pod to go, by all paces and breakers that bind it.
type passage struct {
	ticket pace.Ticket
	permit *breaker.Permit
}

// settle gives back what was not used. Where it is not known whether the pod went, it
// has been.
func (p passage) settle(now time.Time, gone bool) {
	p.ticket.Settle(now, gone)
	p.permit.Settle(gone)
}

// admit asks for leave for a pod to go. A breaker that has no room holds it; a positive
// duration says that it is not its turn yet.
func (e *Evictor) admit(goal *target) (passage, *hold, time.Duration) {
	key, now := goal.pod.Key, e.local.Now()
	treatment := &goal.treatment
	ticket, goes := pace.Ticket{}, true
	if len(treatment.Paces) > 0 {
		ticket, goes = e.lines.Ask(now, key, pace.LimitsOf(treatment.Paces))
	} else if len(goal.open.because) == 1 {
		// With more reasons the place may be kept for another.
		e.lines.Leave(now, key)
	}
	if !goes {
		e.book.free(key, true)
		return passage{}, nil, heldPause
	}
	if len(treatment.Breakers) == 0 {
		return passage{ticket: ticket}, nil, 0
	}
	answer := e.options.Breakers.Ask(treatment.Breakers, causeOf(&goal.cause))
	if answer.HeldBy != nil {
		ticket.Settle(now, false)
		held := newHold(&goal.cause, HoldBreakerTripped, answer.HeldBy)
		return passage{}, &held, 0
	}
	e.book.free(key, true)
	if answer.Permit == nil {
		ticket.StepAside(now)
		return passage{}, nil, max(answer.Wait, time.Millisecond)
	}
	return passage{ticket: ticket, permit: answer.Permit}, nil, 0
}

// stillTripped reports whether a breaker that held a pod when it was last looked at
// still does, for every reason. That is told without a request, so that pods that are
// held for hours cost the API server nothing. It may be another breaker by now.
func (e *Evictor) stillTripped(goal *target) bool {
	if !e.book.tripped(goal.pod.Key) {
		return false
	}
	holds := make([]hold, 0, len(goal.open.because))
	for i := range goal.open.because {
		bound := goal.open.treatment(i).Breakers
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

func causeOf(reason *Reason) breaker.Cause {
	return breaker.Cause{Carrier: reason.Taint.Source, Key: reason.Taint.Key, Effect: reason.Taint.Effect}
}
