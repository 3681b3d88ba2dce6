package app

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namespaceInformers is what is used of a cache.
type namespaceInformers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// NamespaceLabels knows the labels of all namespaces, as a watch brings them. One that is open and
// brings nothing is not noticed: labels may then be as old as that watch, which the API
// server is asked to end after five to ten minutes. It is safe for concurrent use.
type NamespaceLabels struct {
	changed func(name string)

	mu    sync.RWMutex
	known map[string]namespace
}

// namespace is what is kept of a namespace. Its labels are not written to.
type namespace struct {
	uid    types.UID
	labels labels.Set
}

// Watch returns the labels of namespaces as a cache has them. It waits for nothing:
// until the cache has read them, they are not known. Changed is told the name of a namespace
// whose labels come to be known or change, and must not block.
func Watch(ctx context.Context, from namespaceInformers, changed func(name string)) (*NamespaceLabels, error) {
	informer, err := from.GetInformer(ctx, &corev1.Namespace{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	l := &NamespaceLabels{changed: changed, known: map[string]namespace{}}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: l.set, UpdateFunc: func(_, now any) { l.set(now) }, DeleteFunc: l.drop,
	})
	if err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	return l, nil
}

// Of returns the labels of a namespace, which are not to be written to; false while it
// is not known.
func (l *NamespaceLabels) Of(name string) (labels.Labels, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	found, ok := l.known[name]
	return found.labels, ok
}

func (l *NamespaceLabels) set(obj any) {
	object, ok := obj.(*corev1.Namespace)
	if !ok {
		return
	}
	l.mu.Lock()
	before, known := l.known[object.Name]
	l.known[object.Name] = namespace{uid: object.UID, labels: object.Labels}
	l.mu.Unlock()
	if !known || !maps.Equal(before.labels, object.Labels) {
		l.changed(object.Name)
	}
}

// drop forgets a namespace, unless another one has its name by now.
func (l *NamespaceLabels) drop(obj any) {
	if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	object, ok := obj.(*corev1.Namespace)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known[object.Name].uid == object.UID {
		delete(l.known, object.Name)
	}
}
