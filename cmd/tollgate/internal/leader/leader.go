// Package leader runs work that only one replica may do at a time.
//
// It differs from the leader election of controller-runtime in two ways. A replica that loses the
// lease stops leading and keeps running, because a short outage of the API server must not stop
// the admission webhook. And workers can check when the lease was last renewed: after a process
// was frozen, its workers still believe that they lead.
package leader

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
)

// Durations are the durations of the lease; see leaderelection.LeaderElectionConfig.
type Durations struct {
	Lease, RenewDeadline, RetryPeriod time.Duration
}

// Runner runs work whenever this replica holds the lease. It is a runnable of a
// controller-runtime manager, on every replica.
type Runner struct {
	lock      *Lock
	durations Durations
	work      func(ctx context.Context) error
}

// NewRunner returns a Runner. Work must return when its context ends, and never runs twice at a
// time.
func NewRunner(lock *Lock, durations Durations, work func(ctx context.Context) error) *Runner {
	return &Runner{lock: lock, durations: durations, work: work}
}

// NeedLeaderElection is false: every replica takes part in the election.
func (r *Runner) NeedLeaderElection() bool { return false }

// Start takes part in the election until ctx is done, and returns when work has ended and the
// lease is released. It also returns the first error of work.
func (r *Runner) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.runTerm(ctx); err != nil {
			return err
		}
	}
	return nil
}

// runTerm takes part in one election, and leads until the lease is lost or ctx is done. When ctx
// is done the lease is released after work has ended, so that it does not overlap with the next
// leader's.
func (r *Runner) runTerm(ctx context.Context) error {
	r.lock.Stand()
	election, endElection := context.WithCancel(context.WithoutCancel(ctx))
	defer endElection()
	log := logr.FromContextOrDiscard(ctx)
	var t term
	lead := func(held context.Context) {
		if !t.begin() {
			return
		}
		defer endElection()
		work, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(held, stop)()
		log.Info("leading")
		t.finish(r.work(work))
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:            "tollgate",
		Lock:            r.lock,
		LeaseDuration:   r.durations.Lease,
		RenewDeadline:   r.durations.RenewDeadline,
		RetryPeriod:     r.durations.RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: lead,
			OnStoppedLeading: func() { log.V(1).Info("not leading") },
		},
	})
	if err != nil {
		return fmt.Errorf("stand for election: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		_ = t.end() // the error is returned below
		endElection()
	})()
	elector.Run(election)
	return t.end()
}

// term is the work of one term. The elector starts it on a goroutine of its own, perhaps after
// the term has ended.
type term struct {
	mutex sync.Mutex
	over  bool
	err   error
	work  sync.WaitGroup
}

// begin reports whether work may start; if so, finish must be called after it.
func (t *term) begin() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !t.over {
		t.work.Add(1)
	}
	return !t.over
}

func (t *term) finish(err error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.err = err
	t.work.Done()
}

// end prevents work from starting, waits until it has ended, and returns its error.
func (t *term) end() error {
	t.mutex.Lock()
	t.over = true
	t.mutex.Unlock()
	t.work.Wait()
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.err
}
