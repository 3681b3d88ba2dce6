package evictor

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
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
	e.fit.Leads(e.Clock.Now())
	e.disruption.Reset()
	e.observeNodes(e.Clock.Now())
	e.running.Store(true)
	defer e.running.Store(false)

	var running sync.WaitGroup
	for _, start := range []func(context.Context) error{e.pods.Start, e.nodes.Start} {
		running.Go(func() { _ = start(ctx) }) // It returns no error.
	}
	loop := func(work func(context.Context)) {
		running.Go(func() { controller.Loop(ctx, "evictor", e.Local, work) })
	}
	loop(func(ctx context.Context) { e.rates.Run(ctx, e.Local, e.podsCalled) })
	loop(e.housekeep)
	for range act.LateWorkers {
		loop(e.requests.MarkLate)
	}
	logr.FromContextOrDiscard(ctx).Info("evictor started", "workers", e.Workers)
	<-ctx.Done()
	running.Wait()
	e.firstPass.use(nil)
	e.requests.ForgetLate()
	e.rates.Clear()
	e.state.empty()
	e.announce.flush(true)
	return nil
}

func (e *Evictor) waitSynced(ctx context.Context) bool {
	ticker := e.Local.NewTicker(syncPoll)
	defer ticker.Stop()
	logged := e.Local.Now()
	for !e.Synced() {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C():
		}
		if now := e.Local.Now(); now.Sub(logged) >= syncPatience {
			logged = now
			logr.FromContextOrDiscard(ctx).Info("nobody is evicted yet: not everything has been listed", "missing", e.Missing())
		}
	}
	return true
}

// housekeep writes summaries, removes old reads, counts the nodes that are down, and checks
// whether the mode fits the cluster.
func (e *Evictor) housekeep(ctx context.Context) {
	ticker := e.Local.NewTicker(announceTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			e.announce.flush(false)
			e.announce.flushHeld(e.state, e.Tracker.UIDOf)
			e.confirm.Sweep()
			e.observeNodes(e.Clock.Now())
			e.checkFit(ctx)
		}
	}
}

// firstPass is the first decision about every pod after this replica became leader. Until it is
// complete, the number of held pods is not known.
type firstPass struct {
	mu sync.Mutex
	// left are the pods that were not processed yet, nil while the evictor does not run.
	left sets.Set[tracker.Key]
}

// use sets the pods that were not processed yet.
func (r *firstPass) use(left sets.Set[tracker.Key]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = left
}

// done records that a pod was processed.
func (r *firstPass) done(key tracker.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left.Delete(key)
}

// Settled reports whether every pod was processed since this replica leads, so that Held is
// complete.
func (e *Evictor) Settled() bool {
	e.firstPass.mu.Lock()
	defer e.firstPass.mu.Unlock()
	return e.firstPass.left != nil && len(e.firstPass.left) == 0
}
