package plugins

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2" //nolint:depguard // The scheduler logs with it, and its contexts carry no logger.
	"k8s.io/utils/clock"
)

// wakeInterval is how far apart pods are woken. Waking skips their backoff, and it is
// as long as the first of it, so patches that change all the time cost no more than pods
// that fail all the time.
const wakeInterval = time.Second

// worker keeps the view up to date. Pods are woken when lists see a change, never
// before, and after the last change always.
type worker struct {
	// refresh lets lists see what has changed, and says whether anything had.
	refresh func() (changed bool, err error)
	wake    func(ctx context.Context)
	// changes has something in it when there is something to refresh.
	changes chan struct{}
}

func newWorker(refresh func() (bool, error), wake func(context.Context)) *worker {
	return &worker{refresh: refresh, wake: wake, changes: make(chan struct{}, 1)}
}

// changed says that there is something to refresh. The refresh reads the stores: they
// hold the change when their handlers are called.
func (w *worker) changed() {
	select {
	case w.changes <- struct{}{}:
	default: // The refresh that is to come will see this one too.
	}
}

// run ends with the context.
func (w *worker) run(ctx context.Context) {
	var (
		ticking clock.RealClock
		owed    bool             // whether pods have to be woken
		rested  <-chan time.Time // when they may be; nil for now
		again   <-chan time.Time // when a refresh that failed is repeated; nil for not
	)
	for {
		select {
		case <-ctx.Done():
			return
		case <-rested:
			rested = nil
		case <-again:
			w.changed()
		case <-w.changes:
			// At once, even if pods are woken later: the next pod is judged by it.
			changed, err := w.refresh()
			owed, again = owed || changed, nil
			if err != nil {
				again = ticking.After(wakeInterval)
				// Before the patches are known no pod gets devices, so there is nothing to say.
				if !errors.Is(err, errNotSynced) {
					klog.FromContext(ctx).Error(err, "Failed to apply ResourceSlicePatches, going on with those before")
				}
			}
		}
		if owed && rested == nil {
			w.wake(ctx)
			owed, rested = false, ticking.After(wakeInterval)
		}
	}
}
