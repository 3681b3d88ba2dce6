package authority

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// BusyError says that a question was not put, because it could not be answered in time:
// too many questions of its namespace, or of all namespaces, are in line.
type BusyError struct {
	// Namespace is that of the request that led to the question; empty for a request
	// outside of namespaces.
	Namespace string
	// Wait is the time until it would have been the question's turn.
	Wait time.Duration
}

// Error implements error. It names nothing that the user who sent the request does not know.
func (e *BusyError) Error() string {
	of := "of requests outside of namespaces"
	if e.Namespace != "" {
		of = fmt.Sprintf("of namespace %.63q", e.Namespace)
	}
	return fmt.Sprintf("too many questions about permissions %s are in line for the API server (the wait is %s); try again later",
		of, e.Wait.Round(time.Millisecond))
}

// lines admit questions to the API server within a rate and a number at one time. The
// questions of each namespace stand in a line of their own, and the lines take turns: a
// namespace with many questions waits for itself, and not the others for it. It is safe for
// concurrent use.
type lines struct {
	rate *rate.Limiter

	mu sync.Mutex
	// free is the number of questions that may be put beside those under way.
	free int
	// waiting are the questions in line by namespace, and order the namespaces that have
	// some, the next one first.
	waiting map[string][]*turn
	order   []string
	// woken says that a timer is set for when the rate allows the next question.
	woken bool
}

// turn is one question in line.
type turn struct{ admitted chan struct{} }

func newLines(limits Limits) *lines {
	l := &lines{rate: rate.NewLimiter(rate.Inf, 0), free: atOnce, waiting: map[string][]*turn{}}
	if limits.PerSecond > 0 {
		l.rate = rate.NewLimiter(rate.Limit(limits.PerSecond), limits.Burst)
	}
	return l
}

// enter returns when it is the turn of a question of a namespace, which then has to leave. It
// returns a BusyError at once if that would take as long as within, or longer.
func (l *lines) enter(ctx context.Context, namespace string, within time.Duration) error {
	l.mu.Lock()
	if wait := l.wait(namespace); wait > 0 && wait >= within {
		l.mu.Unlock()
		return &BusyError{Namespace: namespace, Wait: wait}
	}
	t := &turn{admitted: make(chan struct{})}
	if len(l.waiting[namespace]) == 0 {
		l.order = append(l.order, namespace)
	}
	l.waiting[namespace] = append(l.waiting[namespace], t)
	l.admit()
	l.mu.Unlock()
	select {
	case <-t.admitted:
		return nil
	case <-ctx.Done():
		l.abandon(namespace, t)
		return fmt.Errorf("wait to review access: %w", context.Cause(ctx))
	}
}

// leave ends a question that was admitted.
func (l *lines) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	l.admit()
}

// wait estimates the time until the rate allows one more question of a namespace. Before it
// come those of its own line, and from each other line no more than there are in its own.
func (l *lines) wait(namespace string) time.Duration {
	if l.rate.Limit() == rate.Inf {
		return 0
	}
	own := len(l.waiting[namespace]) + 1
	ahead := own
	for other, line := range l.waiting {
		if other != namespace {
			ahead += min(len(line), own)
		}
	}
	seconds := (float64(ahead) - l.rate.Tokens()) / float64(l.rate.Limit())
	return max(0, time.Duration(seconds*float64(time.Second)))
}

// admit lets in as many questions as there is room for, one of each line in turn.
func (l *lines) admit() {
	for l.free > 0 && len(l.order) > 0 && !l.woken {
		now := time.Now()
		reserved := l.rate.ReserveN(now, 1)
		if delay := reserved.DelayFrom(now); delay > 0 {
			reserved.CancelAt(now)
			l.woken = true
			time.AfterFunc(delay, l.wake)
			return
		}
		namespace := l.order[0]
		l.order = l.order[1:]
		first, rest := l.waiting[namespace][0], l.waiting[namespace][1:]
		l.free--
		close(first.admitted)
		if len(rest) == 0 {
			delete(l.waiting, namespace)
			continue
		}
		l.waiting[namespace] = rest
		l.order = append(l.order, namespace)
	}
}

func (l *lines) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.woken = false
	l.admit()
}

// abandon takes a question out of its line, or gives back its place if it was admitted
// meanwhile.
func (l *lines) abandon(namespace string, t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.waiting[namespace]
	at := slices.Index(line, t)
	if at < 0 {
		l.free++
		l.admit()
		return
	}
	if len(line) > 1 {
		l.waiting[namespace] = slices.Delete(line, at, at+1)
		return
	}
	delete(l.waiting, namespace)
	l.order = slices.DeleteFunc(l.order, func(one string) bool { return one == namespace })
}
