package informer

import (
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/tracker"
)

// handler passes on the events of one informer. It holds no state, so that
// whatever runs it may be stopped and started anew.
type handler[O, T any, P identified[T]] struct {
	// of returns what is kept of an object of the API.
	of        func(*O) T
	set, drop func(T)
	// named returns what can be said of an object by its key alone. It is nil where
	// that is not enough to drop one.
	named func(key string) (T, bool)
}

func handle[O, T any, P identified[T]](of func(*O) T, set, drop func(T), named func(key string) (T, bool)) toolscache.ResourceEventHandler {
	return &handler[O, T, P]{of: of, set: set, drop: drop, named: named}
}

// OnAdd implements cache.ResourceEventHandler.
func (h *handler[O, T, P]) OnAdd(obj any, _ bool) {
	if now, ok := read[O, T, P](obj, h.of); ok {
		h.set(now)
	}
}

// OnUpdate implements cache.ResourceEventHandler. An object that was replaced
// under its name while the watch was away comes as an update too, and so does one that was
// restored from a backup: an informer takes versions in their order, so that an older one
// after a newer one is what is stored now.
func (h *handler[O, T, P]) OnUpdate(old, obj any) {
	now, ok := read[O, T, P](obj, h.of)
	if !ok {
		return
	}
	if was, ok := read[O, T, P](old, h.of); ok {
		before, after := P(&was).Identity(), P(&now).Identity()
		if before.UID != after.UID || tracker.Older(after.ResourceVersion, before.ResourceVersion) {
			h.drop(was)
		}
	}
	h.set(now)
}

// OnDelete implements cache.ResourceEventHandler. An informer that missed the
// deletion itself wraps the last object that it knew in a tombstone.
func (h *handler[O, T, P]) OnDelete(obj any) {
	tombstone, missed := obj.(toolscache.DeletedFinalStateUnknown)
	if missed {
		obj = tombstone.Obj
	}
	was, ok := read[O, T, P](obj, h.of)
	if !ok && missed && obj == nil && h.named != nil {
		was, ok = h.named(tombstone.Key)
	}
	if ok {
		h.drop(was)
	}
}
