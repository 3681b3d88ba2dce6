package sliceview

import (
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// subscriber is a handler and what it has yet to be told. All but the handler and
// the channel is guarded by the lock of the view.
type subscriber struct {
	handler toolscache.ResourceEventHandler
	// synced is closed when the handler has returned from the last initial slice.
	synced chan struct{}
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

// HasSynced reports whether the handler has been told of all slices that there
// were when it subscribed.
func (s *subscriber) HasSynced() bool {
	return toolscache.IsDone(s.HasSyncedChecker())
}

// HasSyncedChecker is done when HasSynced says so.
func (s *subscriber) HasSyncedChecker() toolscache.DoneChecker {
	return done{name: "handler of merged resource slices", channel: s.synced}
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

// event is what a handler is told of a slice. There is no old one if the slice is
// new to the handler, and no next one if it is gone.
type event struct {
	old, next *resourcev1.ResourceSlice
	initial   bool
}

// next returns what the subscriber is to be told next. It is called when the
// handler has returned from what came before, with the lock held.
func (v *View) next(s *subscriber) (event, bool) {
	for {
		if s.initial == 0 && !s.ready {
			s.ready = true
			close(s.synced)
		}
		name, always, found := s.pop()
		if !found {
			return event{}, false
		}
		initial := s.initial > 0
		if initial {
			s.initial--
		}
		if e, news := s.compare(name, v.merged(name), always); news {
			e.initial = initial
			return e, true
		}
	}
}

// compare returns what is to be told of a slice that now looks like next.
func (s *subscriber) compare(name string, next *resourcev1.ResourceSlice, always bool) (event, bool) {
	old := s.told[name]
	switch {
	case old == nil && next == nil:
		return event{}, false
	case next == nil:
		delete(s.told, name)
	case old != nil && !always && looksSame(old, next):
		return event{}, false
	default:
		s.told[name] = next
	}
	return event{old: old, next: next}, true
}

// send calls the handler. A slice that was replaced by another under its name is
// one that went and one that came, also if nobody saw the time between.
func (e event) send(handler toolscache.ResourceEventHandler, guard func(call func())) {
	switch {
	case e.old == nil:
		guard(func() { handler.OnAdd(e.next, e.initial) })
	case e.next == nil:
		guard(func() { handler.OnDelete(e.old) })
	case e.old.UID != e.next.UID:
		guard(func() { handler.OnDelete(e.old) })
		guard(func() { handler.OnAdd(e.next, false) })
	default:
		guard(func() { handler.OnUpdate(e.old, e.next) })
	}
}
