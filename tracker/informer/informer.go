package informer

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

// source is what the informers of client-go and of controller-runtime's cache
// have in common.
type source interface {
	AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)
}

// store is the part of a tracker that is fed here.
type store interface {
	SetNode(node tracker.Node, now time.Time) []tracker.Key
	DeleteNode(name string, uid types.UID) []tracker.Key
	SetPod(pod tracker.Pod) []tracker.Key
	DeletePod(key tracker.Key) []tracker.Key
}

// listener is told what the events changed. It is called from the informers'
// event handlers and must not block.
type listener interface {
	// PodsChanged names the pods whose fate may have changed.
	PodsChanged(keys []tracker.Key)
	// NodeChanged names a node that was created or whose spec may have changed.
	NodeChanged(name string)
}

// Feed passes the events of two informers on to a tracker, and what they changed
// to a listener.
type Feed struct {
	store    store
	listener listener
	clock    clock.PassiveClock
	synced   []toolscache.InformerSynced
}

// NewFeed returns a feed that is not attached to any informer yet.
func NewFeed(store store, listener listener, clk clock.PassiveClock) *Feed {
	return &Feed{store: store, listener: listener, clock: clk}
}

// Attach subscribes to both informers. It is called once, before HasSynced.
func (f *Feed) Attach(nodes, pods source) error {
	node, err := nodes.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { f.setNode(obj) },
		UpdateFunc: f.updateNode,
		DeleteFunc: f.deleteNode,
	})
	if err != nil {
		return fmt.Errorf("add node event handler: %w", err)
	}
	pod, err := pods.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { f.setPod(obj) },
		UpdateFunc: f.updatePod,
		DeleteFunc: f.deletePod,
	})
	if err != nil {
		return fmt.Errorf("add pod event handler: %w", err)
	}
	f.synced = []toolscache.InformerSynced{node.HasSynced, pod.HasSynced}
	return nil
}

// HasSynced reports whether the tracker has been given everything that both
// informers found in their first lists. Nothing may be decided before that.
func (f *Feed) HasSynced() bool {
	for _, synced := range f.synced {
		if !synced() {
			return false
		}
	}
	return len(f.synced) > 0
}

func (f *Feed) setNode(obj any) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	f.listener.PodsChanged(f.store.SetNode(tracker.NodeOf(node), f.clock.Now()))
	f.listener.NodeChanged(node.Name)
}

func (f *Feed) updateNode(old, obj any) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	if was, ok := old.(*corev1.Node); ok && was.UID != node.UID {
		f.deleteNode(was)
	}
	f.setNode(node)
}

func (f *Feed) deleteNode(obj any) {
	node, ok := last[*corev1.Node](obj)
	if !ok {
		return
	}
	f.listener.PodsChanged(f.store.DeleteNode(node.Name, node.UID))
	f.listener.NodeChanged(node.Name)
}

func (f *Feed) setPod(obj any) {
	if pod, ok := obj.(*corev1.Pod); ok {
		f.listener.PodsChanged(f.store.SetPod(tracker.PodOf(pod)))
	}
}

// updatePod also handles a pod that was replaced under its name while the watch
// was away: the informer reports that as an update.
func (f *Feed) updatePod(old, obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	if was, ok := old.(*corev1.Pod); ok && was.UID != pod.UID {
		f.deletePod(was)
	}
	f.setPod(pod)
}

func (f *Feed) deletePod(obj any) {
	if pod, ok := last[*corev1.Pod](obj); ok {
		f.listener.PodsChanged(f.store.DeletePod(tracker.PodOf(pod).Key))
	}
}

// last returns the object of a deletion, which an informer wraps in a tombstone
// when it missed the deletion itself.
func last[T any](obj any) (T, bool) {
	if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	typed, ok := obj.(T)
	return typed, ok
}
