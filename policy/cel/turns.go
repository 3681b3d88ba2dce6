package cel

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Turns bound how many evaluations run at the same time of those that cost more than a little, so that
// the others, and all else that the process does, get processor time under any load. An evaluation does
// not hold its turn while it waits for an authorizer. It is safe for concurrent use; nil bounds nothing.
type Turns struct {
	taken   chan struct{}
	waiting atomic.Int64
	most    int64
}

// NewTurns returns turns for so many evaluations at the same time, for which so many may wait.
func NewTurns(running, waiting int) *Turns {
	return &Turns{taken: make(chan struct{}, running), most: int64(waiting)}
}

// BusyError says that an expression was not evaluated because too many evaluations wait for their turn.
// It is no failure of the expression: there is no verdict.
type BusyError struct{ Waiting int64 }

func (e *BusyError) Error() string {
	return fmt.Sprintf("%d costly expressions of other requests wait to be evaluated; try again later", e.Waiting)
}

// take waits for a turn. Who comes for the first time is told at once where too many wait already; who
// has had a turn in the same review is not, as the time spent on it would be lost.
func (t *Turns) take(ctx context.Context, first bool) error {
	if t == nil {
		return nil
	}
	select {
	case t.taken <- struct{}{}:
		return nil
	default:
	}
	waiting := t.waiting.Add(1)
	defer t.waiting.Add(-1)
	if first && waiting > t.most {
		return &BusyError{Waiting: waiting - 1}
	}
	select {
	case t.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

// leave gives a turn back.
func (t *Turns) leave() {
	if t != nil {
		<-t.taken
	}
}
