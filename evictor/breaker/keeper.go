package breaker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tollgate-dev/tollgate/evictor/panics"
	"github.com/tollgate-dev/tollgate/policy/eviction"
)

const (
	// writePause is the least time between two writes for one breaker or approval.
	writePause = 250 * time.Millisecond
	// trippedPause is between two looks whether a breaker need not hold any more, and at
	// the approvals while one does.
	trippedPause = time.Second
	// believed is for how long the status of a breaker that holds is taken to be as it was
	// read.
	believed = 5 * time.Second
	// idlePause is between two looks at a breaker about which nothing is to be done.
	idlePause = time.Minute
	// retryBase and retryMax bound the wait after a request that failed.
	retryBase = 50 * time.Millisecond
	retryMax  = 5 * time.Second
	// leadingPause is after how long to ask again who asks a replica that does not lead.
	leadingPause = time.Second
)

// Keeper keeps the breakers of EvictionPolicies. Its methods are safe for concurrent
// use and do not block, but for Start.
type Keeper struct {
	options Options
	evictor evictor

	mu sync.Mutex
	// term is nil while this replica does not lead.
	term *term
}

// New returns a keeper. It starts nothing: that is what Start does.
func New(options Options) *Keeper { return &Keeper{options: options} }

// Follow sets the evictor whose pods the breakers hold. It is called once, before Start; the
// evictor itself is made with the keeper.
func (k *Keeper) Follow(e evictor) { k.evictor = e }

// Start keeps breakers until ctx is done, which is when the term of leadership is over.
// It may be called again then.
func (k *Keeper) Start(ctx context.Context) error {
	t := newTerm()
	var clerks sync.WaitGroup
	t.attend = func(b *breaker) {
		clerks.Go(func() {
			k.work(ctx, b.wake, func(until time.Time) { t.pause(&b.pause, until) },
				func(ctx context.Context) (rest, error) { return k.attend(ctx, t, b) })
		})
	}
	t.serve = func(r *reservation) {
		clerks.Go(func() {
			k.work(ctx, r.wake, func(until time.Time) { t.pause(&r.pause, until) },
				func(ctx context.Context) (rest, error) { return k.serve(ctx, t, r) })
		})
	}
	k.set(t)
	t.know(k.options.Policies().All())
	clerks.Go(func() { k.follow(ctx, t) })
	<-ctx.Done()
	k.set(nil)
	t.end()
	clerks.Wait()
	k.options.Metrics.tripped.Set(0)
	return nil
}

func (k *Keeper) set(t *term) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.term = t
}

func (k *Keeper) current() *term {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.term
}

// Ask returns whether a pod that is due because of a cause may go, if the breakers of
// these policies bind it. All of them have to let it go, or none counts it. An
// approval of a taint lets pods go that a breaker holds; what it lets go counts for no
// breaker. An approval for a policy stands in for the breaker of that policy alone.
func (k *Keeper) Ask(policies []*eviction.Policy, cause Cause) Answer {
	bound := policies
	if slices.ContainsFunc(policies, unbounded) {
		bound = slices.DeleteFunc(slices.Clone(policies), unbounded)
	}
	if len(bound) == 0 {
		return Answer{Permit: &Permit{}}
	}
	t := k.current()
	if t == nil {
		return Answer{Wait: leadingPause}
	}
	answer := t.ask(bound, k.options.Local.Now())
	if answer.HeldBy == nil {
		return answer
	}
	if approved, ok := k.approved(t, cause); ok {
		return approved
	}
	if released, ok := k.released(t, bound); ok {
		return released
	}
	return answer
}

func unbounded(policy *eviction.Policy) bool { return policy.Breaker == nil }

// PoliciesChanged says that other policies are in force than before.
func (k *Keeper) PoliciesChanged() {
	t := k.current()
	if t == nil {
		return
	}
	t.know(k.options.Policies().All())
	t.stir()
}

// ApprovalsChanged says that there may be other EvictionApprovals than before. They
// are looked at unasked as well, once a second while a breaker holds.
func (k *Keeper) ApprovalsChanged() {
	if t := k.current(); t != nil {
		t.stirApprovals()
	}
}

// rest is when a clerk works again: not before a pause, then when it is woken, and
// after some time unasked. Done is true when it has nothing to do any more.
type rest struct {
	pause, again time.Duration
	done         bool
}

// work is what a clerk does until ctx is done. It works after failures until
// it succeeds, more and more rarely.
func (k *Keeper) work(ctx context.Context, wake <-chan struct{}, pausing func(until time.Time), look func(context.Context) (rest, error)) {
	for failures := 0; ctx.Err() == nil; {
		r, err := k.once(ctx, look)
		if r.done {
			return
		}
		if err != nil {
			r.pause = max(k.backoff(err, failures), r.pause)
			r.again = time.Nanosecond
			k.complain(ctx, err, failures)
			failures++
		} else {
			failures = 0
		}
		pausing(k.options.Local.Now().Add(r.pause))
		if !k.sleep(ctx, r.pause, nil) || !k.sleep(ctx, r.again, wake) {
			return
		}
	}
}

// once looks once. A replica that is not sure that it leads asks for nothing: it was frozen
// past its lease, and does not know yet that its term is over.
func (k *Keeper) once(ctx context.Context, look func(context.Context) (rest, error)) (rest, error) {
	if k.options.Leads != nil && !k.options.Leads() {
		return rest{pause: leadingPause, again: time.Nanosecond}, nil
	}
	attempt, cancel := context.WithTimeout(ctx, k.options.Timeout)
	defer cancel()
	var found rest
	err := panics.Contain(ctx, "breaker", func() (err error) {
		found, err = look(attempt)
		return err
	})
	return found, err
}

// backoff returns how long to wait after a failure that follows on so many others.
func (k *Keeper) backoff(err error, failures int) time.Duration {
	wait := min(retryBase<<min(failures, 10), retryMax)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		wait = max(wait, min(time.Duration(seconds)*time.Second, time.Minute))
	}
	return wait
}

func (k *Keeper) complain(ctx context.Context, err error, failures int) {
	log := logr.FromContextOrDiscard(ctx)
	if failures > 0 || apierrors.IsConflict(err) || ctx.Err() != nil {
		log = log.V(1) // It was said when it began, or is no fault.
	}
	log.Info("cannot write what a breaker counts yet", "reason", err.Error())
}

// sleep waits for some time, or until it is woken; false when ctx is done.
func (k *Keeper) sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := k.options.Local.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C():
	}
	return ctx.Err() == nil
}
