package sliceview

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
)

// Run delivers events to the handlers until the context ends, and returns when no
// handler is being called any more and the view has left its informers. It is
// called once, after Attach.
func (v *View) Run(ctx context.Context) error {
	if len(v.inputs) == 0 {
		return errors.New("run merged view: not attached to informers")
	}
	var deliveries sync.WaitGroup
	v.locked(func() {
		v.start = func(s *subscriber) { deliveries.Go(func() { v.deliver(ctx, s) }) }
		for _, s := range v.subscribers {
			v.start(s)
		}
	})
	var inputs []toolscache.DoneChecker
	for _, in := range v.inputs {
		inputs = append(inputs, in.registration.HasSyncedChecker())
	}
	if toolscache.WaitFor(ctx, "", inputs...) {
		v.locked(func() {
			v.open = true
			close(v.done.channel)
			for _, s := range v.subscribers {
				v.greet(s)
			}
		})
		<-ctx.Done()
	}
	v.locked(func() {
		v.start, v.stopped = nil, true
		for _, s := range v.subscribers {
			s.wake.Signal()
		}
	})
	deliveries.Wait()
	var problems []error
	for _, in := range v.inputs {
		if err := in.informer.RemoveEventHandler(in.registration); err != nil {
			problems = append(problems, fmt.Errorf("remove event handler: %w", err))
		}
	}
	return errors.Join(problems...)
}

func (v *View) locked(do func()) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	do()
}

// deliver tells a subscriber what there is to tell until it or the view ends.
func (v *View) deliver(ctx context.Context, s *subscriber) {
	for {
		e, more := v.await(s) //nolint:contextcheck // A merge ends by its cost, not by a context.
		if !more {
			return
		}
		e.send(ctx, s.handler)
	}
}

// protect makes a call of a handler and logs its panic: no handler may
// end the process that the others depend on (K07).
func protect(ctx context.Context, call func()) {
	defer func() {
		if reason := recover(); reason != nil {
			logr.FromContextOrDiscard(ctx).Error(fmt.Errorf("panic: %v", reason), "handler of merged resource slices panicked",
				"stack", string(debug.Stack()))
		}
	}()
	call()
}

// input is an informer that the view is subscribed to.
type input struct {
	informer     informer
	registration toolscache.ResourceEventHandlerRegistration
}
