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

// namespaceInformers is the part of a cache that Watch uses.
type namespaceInformers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// NamespaceLabels caches the labels of all namespaces from a watch. A watch that hangs is not
// detected: labels may be as old as the watch, which the API server ends after five to ten
// minutes. It is safe for concurrent use.
type NamespaceLabels struct {
	changed func(name string)

	mu         sync.RWMutex
	namespaces map[string]namespace
}

// namespace is the cache entry of a namespace. Its labels are read-only.
type namespace struct {
	uid    types.UID
	labels labels.Set
}

// Watch returns the labels of namespaces from a cache. It does not wait for the cache to sync.
// Changed is called with the name of a namespace that is added or whose labels change, and must
// not block.
func Watch(ctx context.Context, from namespaceInformers, changed func(name string)) (*NamespaceLabels, error) {
	informer, err := from.GetInformer(ctx, &corev1.Namespace{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	l := &NamespaceLabels{changed: changed, namespaces: map[string]namespace{}}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: l.set, UpdateFunc: func(_, now any) { l.set(now) }, DeleteFunc: l.remove,
	})
	if err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	return l, nil
}

// Of returns the labels of a namespace, which are read-only; false while it is not in the cache.
func (l *NamespaceLabels) Of(name string) (labels.Labels, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	found, ok := l.namespaces[name]
	return found.labels, ok
}

func (l *NamespaceLabels) set(obj any) {
	object, ok := obj.(*corev1.Namespace)
	if !ok {
		return
	}
	l.mu.Lock()
	before, exists := l.namespaces[object.Name]
	l.namespaces[object.Name] = namespace{uid: object.UID, labels: object.Labels}
	l.mu.Unlock()
	if !exists || !maps.Equal(before.labels, object.Labels) {
		l.changed(object.Name)
	}
}

// remove deletes a namespace, unless another one has its name by now.
func (l *NamespaceLabels) remove(obj any) {
	if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	object, ok := obj.(*corev1.Namespace)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.namespaces[object.Name].uid == object.UID {
		delete(l.namespaces, object.Name)
	}
}
