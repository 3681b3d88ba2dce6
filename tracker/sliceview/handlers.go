package sliceview

import (
	"errors"
	"slices"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// AddEventHandler subscribes a handler, before or after the view runs. It is told
// of all slices that there are as initial ones, and then of what changes, by
// pointers to ResourceSlices, never by tombstones. A slice that the driver wrote
// is always told of, one that only rules or patches are about if its devices changed
// (TR-06). When several changes meet before the handler is told, it is told once.
func (v *View) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if v.stopped {
		return nil, errors.New("add event handler: the view has stopped")
	}
	s := &subscriber{
		syncing: newSyncing("handler of merged resource slices"),
		handler: handler,
		wake:    sync.NewCond(&v.mutex),
		told:    map[string]*resourcev1.ResourceSlice{},
		due:     map[string]bool{},
	}
	v.subscribers = append(v.subscribers, s)
	if v.open {
		v.greet(s)
	}
	if v.start != nil {
		v.start(s)
	}
	return s, nil
}

// RemoveEventHandler ends a subscription. It does not wait for a handler that is
// being called. Removing twice is no error.
func (v *View) RemoveEventHandler(registration toolscache.ResourceEventHandlerRegistration) error {
	s, ok := registration.(*subscriber)
	if !ok {
		return errors.New("remove event handler: registered elsewhere")
	}
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.subscribers = slices.DeleteFunc(v.subscribers, func(other *subscriber) bool { return other == s })
	s.removed = true
	s.wake.Signal()
	return nil
}

// greet queues all slices as initial ones. The lock is held.
func (v *View) greet(s *subscriber) {
	entries := v.entries()
	s.initial = len(entries)
	for _, e := range entries {
		s.push(e.raw.Name, true)
	}
	s.wake.Signal()
}
