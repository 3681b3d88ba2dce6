package sliceview

import (
	"context"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// subscriber is a handler and the names of the slices that it has yet to be told of. All but the handler and
// the channel is guarded by the lock of the view.
type subscriber struct {
	// syncing ends when the handler has returned from the last initial slice.
	syncing
	handler toolscache.ResourceEventHandler
	// wake is signalled when there may be something to do.
	wake *sync.Cond

	// told has the slices as the handler was last told of them.
	told map[string]*resourcev1.ResourceSlice
	// due has the names that wait, and whether the handler is told even if no device
	// changed. They are taken from batch, in order, and then from queue; both keep
	// their memory.
	due          map[string]bool
	batch, queue []string
	taken        int
	// initial is how many of the names that wait are there from the start. They
	// come first.
	initial int
	ready   bool
	removed bool
}

// push queues a slice, unless it waits already.
func (s *subscriber) push(name string, always bool) {
	if was, waits := s.due[name]; waits {
		s.due[name] = was || always
		return
	}
	s.due[name] = always
	s.queue = append(s.queue, name)
	s.wake.Signal()
}

// pop takes the name that has waited the longest.
func (s *subscriber) pop() (name string, always, found bool) {
	if s.taken == len(s.batch) {
		s.batch, s.queue, s.taken = s.queue, s.batch[:0], 0
	}
	if len(s.batch) == 0 {
		return "", false, false
	}
	name = s.batch[s.taken]
	s.taken++
	always = s.due[name]
	delete(s.due, name)
	return name, always, true
}

// event is the change of a slice that a handler is told of. There is no old one if the slice is
// new to the handler, and no next one if it is gone.
type event struct {
	old, next *resourcev1.ResourceSlice
	initial   bool
}

// await waits for the next event of a subscriber; false means that there will be none. It is
// called when the handler has returned from what came before.
func (v *View) await(s *subscriber) (event, bool) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	for !s.removed && !v.stopped {
		if v.open && s.initial == 0 && !s.ready {
			s.ready = true
			close(s.done.channel)
		}
		name, always, found := s.pop()
		if !found { // As it is until the view opens.
			s.wake.Wait()
			continue
		}
		e := event{old: s.told[name], next: v.merged(name), initial: s.initial > 0}
		if e.initial {
			s.initial--
		}
		switch {
		case e.next != nil && (e.old == nil || always || !looksSame(e.old, e.next)):
			s.told[name] = e.next
		case e.next == nil && e.old != nil:
			delete(s.told, name)
		default:
			continue
		}
		return e, true
	}
	return event{}, false
}

// send calls the handler. A slice that was replaced by another under its name is
// one that went and one that came, also if the time between was not seen.
func (e event) send(ctx context.Context, handler toolscache.ResourceEventHandler) {
	switch {
	case e.old == nil:
		protect(ctx, func() { handler.OnAdd(e.next, e.initial) })
	case e.next == nil:
		protect(ctx, func() { handler.OnDelete(e.old) })
	case e.old.UID != e.next.UID:
		protect(ctx, func() { handler.OnDelete(e.old) })
		protect(ctx, func() { handler.OnAdd(e.next, false) })
	default:
		protect(ctx, func() { handler.OnUpdate(e.old, e.next) })
	}
}
