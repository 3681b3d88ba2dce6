package checks

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/breaker"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// Breakers bound how many pods leave in a window. breaker.Keeper implements it.
type Breakers interface {
	Ask(pod types.UID, policies []*eviction.Policy, cause breaker.Cause) breaker.Answer
}

// NoBreakers holds all pods that a breaker bounds, for a program without a breaker.Keeper.
type NoBreakers struct{}

// Ask implements Breakers.
func (NoBreakers) Ask(_ types.UID, policies []*eviction.Policy, _ breaker.Cause) breaker.Answer {
	return breaker.Answer{HeldBy: policies[0]}
}

// Breaker returns the check that bounds how many pods leave in a window.
func Breaker(breakers Breakers) Check { return breakerCheck{breakers} }

type breakerCheck struct{ breakers Breakers }

func (c breakerCheck) Ask(_ Now, of *Eviction) Answer {
	if len(of.Treatment.Breakers) == 0 {
		return Answer{}
	}
	answer := c.breakers.Ask(of.Pod.UID, of.Treatment.Breakers, causeOf(of.Reason))
	switch {
	case answer.HeldBy != nil:
		return Answer{Hold: NewHold(BreakerTripped, answer.HeldBy)}
	case answer.Permit == nil:
		return Answer{Wait: max(answer.Wait, time.Millisecond)}
	}
	return Answer{Undo: func(_ Now, end End) { answer.Permit.Settle(end == Left) }}
}

func causeOf(reason *decide.Reason) breaker.Cause {
	return breaker.Cause{Carrier: reason.Taint.Source, Patch: reason.Taint.Patch, Key: reason.Taint.Key, Effect: reason.Taint.Effect}
}
