package checks

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/breaker"
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
func Breaker(breakers Breakers) Check {
	return func(_ Now, of *Eviction) Answer {
		if len(of.Treatment.Breakers) == 0 {
			return Answer{}
		}
		taint := &of.Taint
		answer := breakers.Ask(of.Pod.UID, of.Treatment.Breakers, breaker.Cause{
			Carrier: taint.Source, Patch: taint.Patch, Key: taint.Key, Effect: taint.Effect,
		})
		switch {
		case answer.HeldBy != nil:
			return Answer{Hold: NewHold(BreakerTripped, answer.HeldBy)}
		case answer.Permit == nil:
			return Answer{Wait: max(answer.Wait, time.Millisecond)}
		}
		return Answer{Undo: func(_ Now, end End) { answer.Permit.Settle(end == Left) }}
	}
}
