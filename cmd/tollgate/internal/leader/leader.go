// Package leader runs what only one replica may do.
//
// Two things are different from the leader election of controller-runtime. A
// replica that loses the lease stops leading and goes on with everything else,
// because an API server that is away for some seconds must not end the admission
// webhook. And whoever acts as the leader can ask when the lease was last
// renewed: a process that was frozen wakes up with workers that believe that they
// still lead.
package leader

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
)

// Durations are those of the lease; see leaderelection.LeaderElectionConfig.
type Durations struct {
	Lease, RenewDeadline, RetryPeriod time.Duration
}

// Runner runs work while this replica holds the lease, again and again. It is a
// runnable of a controller-runtime manager, on every replica.
type Runner struct {
	lock      *Lock
	durations Durations
	work      func(ctx context.Context) error
}

// NewRunner returns a Runner. Work must return when its context ends; it is
// never run twice at one time.
func NewRunner(lock *Lock, durations Durations, work func(ctx context.Context) error) *Runner {
	return &Runner{lock: lock, durations: durations, work: work}
}

// NeedLeaderElection is false: every replica stands for election.
func (r *Runner) NeedLeaderElection() bool { return false }

// Start stands for election until ctx is done, and returns when work has ended
// and the lease has been given back. An error of work ends it too.
func (r *Runner) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.term(ctx); err != nil {
			return err
		}
	}
	return nil
}

// term stands for election once, and leads until the lease is lost or ctx is
// done. When ctx is done the lease is given back after work has ended, not before:
// the next leader must not meet what the last one has under way.
func (r *Runner) term(ctx context.Context) error {
	r.lock.Stand()
	election, endElection := context.WithCancel(context.WithoutCancel(ctx))
	defer endElection()
	log := logr.FromContextOrDiscard(ctx)
	var t tenure
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
		_ = t.end() // what it returns is returned below
		endElection()
	})()
	elector.Run(election)
	return t.end()
}

// tenure is the work of one term. The election starts it on a goroutine of its
// own, perhaps only when the term is over.
type tenure struct {
	mutex sync.Mutex
	over  bool
	err   error
	work  sync.WaitGroup
}

// begin reports whether work may start; finish must be called after it.
func (t *tenure) begin() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !t.over {
		t.work.Add(1)
	}
	return !t.over
}

func (t *tenure) finish(err error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.err = err
	t.work.Done()
}

// end keeps work from starting, waits until it has ended, and returns its error.
func (t *tenure) end() error {
	t.mutex.Lock()
	t.over = true
	t.mutex.Unlock()
	t.work.Wait()
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.err
}
