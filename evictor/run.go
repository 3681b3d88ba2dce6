package evictor

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// syncPoll is how often it is looked whether the tracker is ready.
	syncPoll = 50 * time.Millisecond
	// syncPatience is after how long, and then how often, the log says that it is not.
	syncPatience = 30 * time.Second
)

// Start evicts until ctx is done and returns when all that it started has
// stopped. Nothing is decided before the tracker knows everything. It may be called
// again when it has returned: a replica that lost the lease may get it back.
func (e *Evictor) Start(ctx context.Context) error {
	if !e.waitSynced(ctx) {
		return nil
	}
	e.fit.Leads(e.clock.Now())
	e.disruption.Reset()
	e.lookAtNodes(e.clock.Now())
	e.running.Store(true)
	defer e.running.Store(false)

	var running sync.WaitGroup
	e.starting.Add(3) // The queues.
	for _, start := range []func(context.Context) error{e.queues.plain.Start, e.queues.claiming.Start, e.queues.nodes.Start} {
		running.Go(func() { _ = start(ctx) }) // It returns no error.
	}
	loop := func(work func(context.Context)) {
		running.Go(func() { controller.Loop(ctx, "evictor", e.local, work) })
	}
	loop(func(ctx context.Context) { e.rates.Run(ctx, e.local, e.podsCalled) })
	loop(e.housekeep)
	for range act.LateWorkers {
		loop(e.requests.MarkLate)
	}
	e.starting.Wait()
	e.lookAtAll()
	logr.FromContextOrDiscard(ctx).Info("evictor started", "workers", e.options.Workers)
	<-ctx.Done()
	running.Wait()
	e.round.end()
	e.requests.ForgetLate()
	e.rates.Clear()
	e.book.empty()
	e.announce.flush(true)
	return nil
}

// lookAtAll looks at all that the tracker knows, and forgets what has gone since an earlier lease.
func (e *Evictor) lookAtAll() {
	for _, object := range e.odd.objects() {
		if object.Kind == tracker.SourceNode {
			e.NodeChanged(object.Name)
		} else {
			e.RuleChanged(object.Name)
		}
	}
	for _, name := range names(e.book.counted(), tracker.SourceRule) {
		e.RuleChanged(name)
	}
	for _, name := range e.tracker.Tainted() {
		e.NodeChanged(name)
	}
	for _, name := range e.tracker.Rules() {
		e.RuleChanged(name)
	}
	exposed := e.tracker.Exposed()
	e.round.begin(exposed)
	e.PodsChanged(exposed)
}

func (e *Evictor) waitSynced(ctx context.Context) bool {
	ticker := e.local.NewTicker(syncPoll)
	defer ticker.Stop()
	told := e.local.Now()
	for !e.options.Synced() {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C():
		}
		if now := e.local.Now(); now.Sub(told) >= syncPatience {
			told = now
			logr.FromContextOrDiscard(ctx).Info("nobody is evicted yet: not everything has been listed", "missing", e.options.Missing())
		}
	}
	return true
}

// housekeep writes summaries, forgets what has become old, and looks whether all nodes are
// down.
func (e *Evictor) housekeep(ctx context.Context) {
	ticker := e.local.NewTicker(announceTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			e.announce.flush(false)
			e.announce.flushHeld(e.book, e.tracker.UIDOf)
			e.confirm.Sweep()
			e.lookAtNodes(e.clock.Now())
			e.checkFit(ctx)
		}
	}
}
