package breaker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/controller"
)

const (
	// retryBase and retryMax bound the wait after a request that failed.
	retryBase = 50 * time.Millisecond
	retryMax  = 5 * time.Second
	// leadingPause is the time between two checks of a replica that does not lead.
	leadingPause = time.Second
)

// Keeper keeps the breakers of EvictionPolicies. Its methods are safe for concurrent use. They do
// not block, except Start.
type Keeper struct {
	options Options
	evictor evictor
	// term is nil while this replica does not lead.
	term atomic.Pointer[term]
}

// New returns a keeper. It starts no goroutines; Start does.
func New(options Options) *Keeper { return &Keeper{options: options} }

// Follow sets the evictor whose pods the breakers hold. It is called once, before Start; the
// evictor itself is made with the keeper.
func (k *Keeper) Follow(e evictor) { k.evictor = e }

// Start keeps breakers until ctx is done, which ends the term of leadership. It may be called again
// then.
func (k *Keeper) Start(ctx context.Context) error {
	t := &term{ledgers: map[types.UID]*ledger{}}
	var workers sync.WaitGroup
	t.start = func(l *ledger) { workers.Go(func() { k.work(ctx, t, l) }) }
	k.term.Store(t)
	k.PoliciesChanged()
	workers.Go(func() { k.followApprovals(ctx, t) })
	<-ctx.Done()
	k.term.Store(nil)
	t.mu.Lock()
	t.start = nil // A pod that asks from now on starts no worker.
	t.mu.Unlock()
	workers.Wait()
	k.options.Metrics.tripped.Set(0)
	return nil
}

// Ask is a Check: it lets a pod go on if all breakers that bind it allow that. If one does not, none counts the
// pod. An approval of a taint releases pods from all breakers, none of which counts them. An approval of a policy
// releases pods from the breaker of that policy alone. A breaker that has counted the pod within its window, after
// an attempt that may have worked, needs no room for it and does not hold it, unless the limit was lowered below
// the number of pods that the breaker has counted.
func (k *Keeper) Ask(_ checks.Now, of *checks.Eviction) checks.Answer {
	if len(of.Treatment.Breakers) == 0 {
		return checks.Answer{}
	}
	if t := k.term.Load(); t != nil {
		return t.ask(of.Pod.UID, of.Treatment.Breakers, k.validApprovals(t, &of.Taint), k.options.Local.Now())
	}
	return checks.Answer{Wait: leadingPause}
}

// PoliciesChanged is called after the policies in force changed.
func (k *Keeper) PoliciesChanged() {
	if t := k.term.Load(); t != nil {
		t.signal(k.options.Policies().All())
	}
}

// work is the worker of a ledger. It checks the ledger when it is woken, and after some time, until ctx
// is done or the ledger is dropped. A failure wakes it again, after a growing pause.
func (k *Keeper) work(ctx context.Context, t *term, l *ledger) {
	failures, next, dropped := 0, idlePause, false
	for !dropped && k.sleep(ctx, next, l.wake) {
		pause, err := k.attempt(ctx, t, l)
		if err == nil {
			failures = 0
		} else {
			pause = backoff(ctx, err, failures)
			failures++
			l.signal()
		}
		next, dropped = t.schedule(l, k.options.Local.Now(), pause)
		k.sleep(ctx, pause, nil)
	}
}

// attempt reconciles a ledger once, and returns how long to pause. If the breaker trips, the approvals
// are listed, and if it is released, the held pods are woken, whichever replica wrote it. attempt makes
// no requests while the replica may have lost the lease of the leader, such as after the machine was
// suspended.
func (k *Keeper) attempt(ctx context.Context, t *term, l *ledger) (pause time.Duration, err error) {
	if !k.options.Leads() {
		return leadingPause, nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.options.Timeout)
	defer cancel()
	err = controller.Contain(ctx, "breaker", func() (err error) {
		before := t.tripped()
		pause, err = k.reconcile(ctx, t, l)
		after := t.tripped()
		k.options.Metrics.tripped.Set(float64(len(after)))
		switch held, holds := slices.Contains(before, l.uid), slices.Contains(after, l.uid); {
		case held && !holds:
			k.evictor.WakeHeld(l.uid)
		case holds && !held:
			k.refreshApprovals(ctx, t)
		}
		return err
	})
	return pause, err
}

// backoff logs a failure, and returns how long to pause. A conflict, a failure at the end of the term
// and one that follows others are logged at a higher verbosity.
func backoff(ctx context.Context, err error, failures int) time.Duration {
	log := logr.FromContextOrDiscard(ctx)
	if failures > 0 || apierrors.IsConflict(err) || ctx.Err() != nil {
		log = log.V(1)
	}
	log.Info("cannot write what a breaker counts yet", "reason", err.Error())
	pause := min(retryBase<<min(failures, 10), retryMax)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		pause = max(pause, min(time.Duration(seconds)*time.Second, time.Minute))
	}
	return pause
}

// sleep waits for some time, or until wake; false when ctx is done.
func (k *Keeper) sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := k.options.Local.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C():
	}
	return ctx.Err() == nil
}
