package app

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

// Lead takes part in the election until ctx is done, and runs work whenever this replica holds
// the lease. Work must return when its context ends, and never runs twice at a time. Lead returns
// when work has ended and the lease is released, with the first error of work.
//
// It differs from the leader election of controller-runtime in two ways. A replica that loses the
// lease stops leading and keeps running, because a short outage of the API server must not stop
// the admission webhook. And workers can check when the lease was last renewed: after a process
// was frozen, its workers still believe that they lead.
func (l *Lock) Lead(ctx context.Context, durations *configv1alpha1.LeaderElectionConfiguration, work func(ctx context.Context) error) error {
	for ctx.Err() == nil {
		if err := l.runTerm(ctx, durations, work); err != nil {
			return err
		}
	}
	return nil
}

// runTerm takes part in one election, and leads until the lease is lost or ctx is done. When ctx
// is done the lease is released after work has ended, so that it does not overlap with the next
// leader's.
func (l *Lock) runTerm(ctx context.Context, durations *configv1alpha1.LeaderElectionConfiguration, work func(ctx context.Context) error) error {
	l.Stand()
	election, endElection := context.WithCancel(context.WithoutCancel(ctx))
	defer endElection()
	log := logr.FromContextOrDiscard(ctx)
	var t term
	lead := func(held context.Context) {
		if !t.begin() {
			return
		}
		defer endElection()
		working, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(held, stop)()
		log.Info("leading")
		t.err = work(working)
		t.work.Done()
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:            "tollgate",
		Lock:            l,
		LeaseDuration:   durations.LeaseDuration.Duration,
		RenewDeadline:   durations.RenewDeadline.Duration,
		RetryPeriod:     durations.RetryPeriod.Duration,
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
	work  sync.WaitGroup
	// err is written before work is done, and read after that.
	err error
}

// begin reports whether work may start; if so, the caller must call work.Done after it.
func (t *term) begin() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !t.over {
		t.work.Add(1)
	}
	return !t.over
}

// end prevents work from starting, waits until it has ended, and returns its error.
func (t *term) end() error {
	t.mutex.Lock()
	t.over = true
	t.mutex.Unlock()
	t.work.Wait()
	return t.err
}
