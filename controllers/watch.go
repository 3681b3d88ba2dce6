package controllers

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watchPause is between two attempts to watch.
const watchPause = 5 * time.Second

// informers is what is used of a cache.
type informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// timer is what is used of a clock.
type timer interface {
	After(d time.Duration) <-chan time.Time
}

// Watch tells handler of objects of the kind of object until ctx is done. It tries again
// and again where that is not possible, because the kind is not defined yet.
func Watch(ctx context.Context, cached informers, object client.Object, handler toolscache.ResourceEventHandler, clock timer) {
	for told := false; ; told = true {
		err := watch(ctx, cached, object, handler)
		if ctx.Err() != nil {
			return
		}
		if !told {
			logr.FromContextOrDiscard(ctx).Error(err, "cannot watch yet")
		}
		select {
		case <-ctx.Done():
			return
		case <-clock.After(watchPause):
		}
	}
}

// watch returns when ctx is done, or with an error if it could not begin.
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
