package evictor

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/controller"
)

const (
	// syncPoll is the interval at which Synced is called.
	syncPoll = 50 * time.Millisecond
	// syncPatience is the interval at which the log reports that the tracker is not synced.
	syncPatience = 30 * time.Second
)

// Start evicts pods until ctx is done, and returns after all its goroutines have ended. It decides
// nothing before the tracker is synced. It may be called again after it has returned, because a
// replica that lost the lease may acquire it again.
func (e *Evictor) Start(ctx context.Context) error {
	if !e.waitSynced(ctx) {
		return nil
	}
	e.fit.Leads(e.clock.Now())
	e.disruption.Reset()
	e.observeNodes(e.clock.Now())
	e.running.Store(true)
	defer e.running.Store(false)

	var running sync.WaitGroup
	running.Go(func() { _ = e.pods.Start(ctx) }) // They return no errors.
	running.Go(func() { _ = e.nodes.Start(ctx) })
	loop := func(work func(context.Context)) {
		running.Go(func() { controller.Loop(ctx, "evictor", e.local, work) })
	}
	loop(func(ctx context.Context) { e.rates.Run(ctx, e.local, e.podsCalled) })
	loop(e.housekeep)
	for range act.LateWorkers {
		loop(e.requests.MarkLate)
	}
	logr.FromContextOrDiscard(ctx).Info("evictor started", "workers", e.options.Workers)
	<-ctx.Done()
	running.Wait()
	e.requests.ForgetLate()
	e.rates.Clear()
	e.state.empty()
	e.announce.flush(true)
	return nil
}

func (e *Evictor) waitSynced(ctx context.Context) bool {
	ticker := e.local.NewTicker(syncPoll)
	defer ticker.Stop()
	logged := e.local.Now()
	for !e.options.Synced() {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C():
		}
		if now := e.local.Now(); now.Sub(logged) >= syncPatience {
			logged = now
			logr.FromContextOrDiscard(ctx).Info("nobody is evicted yet: not everything has been listed", "missing", e.options.Missing())
		}
	}
	return true
}

// housekeep writes summaries, removes old reads, counts the nodes that are down, and checks
// whether the mode fits the cluster.
func (e *Evictor) housekeep(ctx context.Context) {
	ticker := e.local.NewTicker(announceTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			e.announce.flush(false)
			e.announce.flushHeld(e.state, e.tracker.UIDOf)
			e.confirm.Sweep()
			e.observeNodes(e.clock.Now())
			e.checkFit(ctx)
		}
	}
}

// Settled reports whether every pod was processed since this replica leads, so that Held is
// complete.
func (e *Evictor) Settled() bool { return e.state.settled() }
