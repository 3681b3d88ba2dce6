package informer

import (
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/tracker"
)

// handle returns a handler that passes on the events of one informer. It holds no state, so that
// the informer may be stopped and started anew. Of returns the kept part of an object of the
// API. Named returns an object with its UID by its key alone, without a UID if it is not
// known; it is nil where that is not enough to drop one.
func handle[O, T any, P identified[T]](of func(*O) T, set, drop func(T), named func(key string) T) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if now, ok := read[O, T, P](obj, of); ok {
				set(now)
			}
		},
		// An object that was replaced under its name while the watch was away comes as an update
		// too, and so does one that was restored from a backup: an informer takes versions in
		// their order, so that an older one after a newer one is the one that is stored now.
		UpdateFunc: func(old, obj any) {
			now, ok := read[O, T, P](obj, of)
			if !ok {
				return
			}
			if was, ok := read[O, T, P](old, of); ok {
				before, after := P(&was).Identity(), P(&now).Identity()
				if before.UID != after.UID || tracker.Older(after.ResourceVersion, before.ResourceVersion) {
					drop(was)
				}
			}
			set(now)
		},
		// An informer that missed the deletion itself wraps the last object that it knew in a
		// tombstone.
		DeleteFunc: func(obj any) {
			tombstone, missed := obj.(toolscache.DeletedFinalStateUnknown)
			if missed {
				obj = tombstone.Obj
			}
			was, ok := read[O, T, P](obj, of)
			if !ok && missed && obj == nil && named != nil {
				was = named(tombstone.Key)
				ok = P(&was).Identity().UID != ""
			}
			if ok {
				drop(was)
			}
		},
	}
}
