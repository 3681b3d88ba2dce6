package controllers

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watchPause is the delay between two attempts to watch.
const watchPause = 5 * time.Second

// informers is the part of a cache that Watch uses.
type informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// timer is the part of a clock that Watch uses.
type timer interface {
	After(d time.Duration) <-chan time.Time
}

// Watch sends the events of the kind of object to handler until ctx is done. It retries
// every watchPause while the cache has no informer for the kind, for example because the
// CRD is not installed yet.
func Watch(ctx context.Context, cached informers, object client.Object, handler toolscache.ResourceEventHandler, clock timer) {
	for logged := false; ; logged = true {
		err := watch(ctx, cached, object, handler)
		if ctx.Err() != nil {
			return
		}
		if !logged {
			logr.FromContextOrDiscard(ctx).Error(err, "cannot watch yet")
		}
		select {
		case <-ctx.Done():
			return
		case <-clock.After(watchPause):
		}
	}
}

// watch returns nil when ctx is done, or an error if it could not register the handler.
func watch(ctx context.Context, cached informers, object client.Object, handler toolscache.ResourceEventHandler) error {
	informer, err := cached.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return informer.RemoveEventHandler(registration)
}
