package evictor

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/tollgate-dev/tollgate/evictor/panics"
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
	queues := newQueues(e.local)
	e.fit.Leads(e.clock.Now())
	e.disruption.Reset()
	e.run(queues)
	e.lookAtNodes(e.clock.Now())
	defer e.run(nil)

	var running sync.WaitGroup
	for _, claiming := range []bool{false, true} {
		for range e.options.Workers {
			running.Go(func() { queues.of(claiming).work(stopping(ctx, e.stepIn(queues, claiming))) })
		}
	}
	running.Go(func() { queues.nodes.work(stopping(ctx, e.stampStep)) })
	running.Go(func() { e.rates.Run(ctx, e.local, e.podsCalled) })
	running.Go(func() {
		e.late.Run(ctx, func(work func() error) error { return panics.Contain(ctx, "evictor", work) })
	})
	running.Go(func() { e.housekeep(ctx) })
	e.lookAtAll()
	logr.FromContextOrDiscard(ctx).Info("evictor started", "workers", e.options.Workers)

	<-ctx.Done()
	queues.shutDown()
	running.Wait()
	e.round.end()
	e.rates.Clear()
	e.book.empty()
	e.announce.flush(true)
	return nil
}

// lookAtAll goes through what was told before there was anybody to listen, and what
// is left of an earlier lease, during which nobody said what has gone since.
func (e *Evictor) lookAtAll() {
	for _, object := range e.odd.objects() {
		switch object.Kind {
		case tracker.SourceNode:
			e.NodeChanged(object.Name)
		case tracker.SourceRule:
			e.RuleChanged(object.Name)
		case tracker.SourceSlice, tracker.SourcePatch:
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

// stopping returns step for a queue, doing nothing once ctx is done: a queue that
// is shut down still hands out what it holds. A panic of step is an error.
func stopping[T any](ctx context.Context, step func(context.Context, T) (time.Duration, error)) func(T) (time.Duration, error) {
	return func(item T) (again time.Duration, err error) {
		select {
		case <-ctx.Done():
			return 0, nil
		default:
			err = panics.Contain(ctx, "evictor", func() error {
				again, err = step(ctx, item)
				return err
			})
			return again, err
		}
	}
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
			logr.FromContextOrDiscard(ctx).Info("nobody is evicted yet: not everything has been listed", "missing", e.missing())
		}
	}
	return true
}

func (e *Evictor) missing() []string {
	if e.options.Missing == nil {
		return nil
	}
	return e.options.Missing()
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

func (e *Evictor) stampStep(ctx context.Context, name string) (time.Duration, error) {
	if !e.options.Leads() {
		return leasePause, nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.options.AttemptTimeout)
	defer cancel()
	err := e.stamper.stamp(ctx, name)
	if err != nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("cannot stamp taints yet", "node", name, "reason", err.Error())
	}
	return 0, err
}
