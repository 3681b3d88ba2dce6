package informer

import (
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/tracker"
)

// handler passes on the events of one informer. It holds no state, so that
// whatever runs it may be stopped and started anew.
type handler[T any] struct {
	// read returns what is kept of an object; false for an object of another kind.
	read func(obj any) (T, bool)
	uid  func(*T) types.UID
	// version returns the resource version of an object.
	version func(*T) string
	set     func(T)
	drop    func(T)
	// named returns what can be said of an object by its key alone. It is nil where
	// that is not enough to drop one.
	named func(key string) (T, bool)
}

// OnAdd implements cache.ResourceEventHandler.
func (h *handler[T]) OnAdd(obj any, _ bool) {
	if now, ok := h.read(obj); ok {
		h.set(now)
	}
}

// OnUpdate implements cache.ResourceEventHandler. An object that was replaced
// under its name while the watch was away comes as an update too, and so does one that was
// restored from a backup: an informer takes versions in their order, so that an older one
// after a newer one is what is stored now.
func (h *handler[T]) OnUpdate(old, obj any) {
	now, ok := h.read(obj)
	if !ok {
		return
	}
	if was, ok := h.read(old); ok && (h.uid(&was) != h.uid(&now) || tracker.Older(h.version(&now), h.version(&was))) {
		h.drop(was)
	}
	h.set(now)
}

// OnDelete implements cache.ResourceEventHandler. An informer that missed the
// deletion itself wraps the last object that it knew in a tombstone.
func (h *handler[T]) OnDelete(obj any) {
	tombstone, missed := obj.(toolscache.DeletedFinalStateUnknown)
	if missed {
		obj = tombstone.Obj
	}
	if was, ok := h.read(obj); ok {
		h.drop(was)
		return
	}
	if missed && obj == nil && h.named != nil {
		if was, ok := h.named(tombstone.Key); ok {
			h.drop(was)
		}
	}
}
