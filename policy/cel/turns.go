package cel

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Turns bound how many evaluations run at the same time of those that cost more than a little, so that
// the others, and all else that the process does, get processor time under any load. An evaluation does
// not hold its turn while it waits for an authorizer. It is safe for concurrent use; nil bounds nothing.
type Turns struct {
	// most is how many reviews may wait for their first turn.
	most int

	mu   sync.Mutex
	free int
	// begun and first are those who wait, the longest first: reviews on which time was spent already,
	// which come before others, and reviews that wait for their first turn.
	begun, first []chan struct{}
}

// NewTurns returns turns for so many evaluations at the same time, for which so many reviews may wait.
func NewTurns(running, waiting int) *Turns { return &Turns{most: waiting, free: running} }

// BusyError says that an expression was not evaluated because too many others wait for their turn. It is
// no failure of the expression: there is no verdict.
type BusyError struct{ Waiting int }

func (e *BusyError) Error() string {
	return fmt.Sprintf("%d requests wait for costly expressions to be evaluated; try again later", e.Waiting)
}

// take waits for a turn. A review that has had none yet is told at once if too many wait already.
func (t *Turns) take(ctx context.Context, first bool) error {
	if t == nil {
		return nil
	}
	turn, err := t.enter(first)
	if turn == nil {
		return err
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		t.abandon(turn)
		return ended(ctx)
	}
}

// enter takes a turn that is free, or returns what is closed when there is one.
func (t *Turns) enter(first bool) (chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.free > 0:
		t.free--
		return nil, nil
	case first && len(t.first) >= t.most:
		return nil, &BusyError{Waiting: len(t.first)}
	}
	line, turn := &t.begun, make(chan struct{})
	if first {
		line = &t.first
	}
	*line = append(*line, turn)
	return turn, nil
}

// abandon ends a wait. A turn that came at the same moment goes to the next.
func (t *Turns) abandon(turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-turn:
		t.pass()
	default:
		is := func(other chan struct{}) bool { return other == turn }
		t.begun, t.first = slices.DeleteFunc(t.begun, is), slices.DeleteFunc(t.first, is)
	}
}

// leave gives a turn back.
func (t *Turns) leave() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass()
}

// pass gives a turn to who waits for it.
func (t *Turns) pass() {
	line := &t.begun
	if len(t.begun) == 0 {
		line = &t.first
	}
	if len(*line) == 0 {
		t.free++
		return
	}
	close((*line)[0])
	*line = slices.Delete(*line, 0, 1)
}
