package informer

import (
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

// source is the part of an informer that is used here.
type source interface {
	AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)
}

// listener is told what the events changed. It is called from the informers'
// event handlers and must not block.
type listener interface {
	// PodsChanged names the pods whose fate may have changed.
	PodsChanged(keys []tracker.Key)
	// NodeChanged names a node that was created or whose spec may have changed.
	NodeChanged(name string)
}

// Feed passes the events of two informers, of nodes and of pods, on to a tracker,
// and what they changed to a listener.
type Feed struct {
	tracker  *tracker.Tracker
	listener listener
	clock    clock.PassiveClock
	// leaving is told of pods that go, nil for nobody.
	leaving  func(key tracker.Key)
	attached bool
	synced   []toolscache.InformerSynced
}

// NewFeed returns a feed that is not attached to any informer yet.
func NewFeed(known *tracker.Tracker, listener listener, clk clock.PassiveClock) *Feed {
	return &Feed{tracker: known, listener: listener, clock: clk}
}

// OnLeaving has leave called with each pod that is being deleted or is gone, before the
// tracker hears of it: what held for the pod can still be looked up then. It may be
// called several times with one pod. OnLeaving is called before Attach.
func (f *Feed) OnLeaving(leave func(key tracker.Key)) { f.leaving = leave }

// Attach subscribes to both informers. It is called once, before HasSynced. The
// informer of nodes may be nil: no node has a taint then.
func (f *Feed) Attach(nodes, pods source) error {
	if nodes != nil {
		node, err := nodes.AddEventHandler(f.nodes())
		if err != nil {
			return fmt.Errorf("add node event handler: %w", err)
		}
		f.synced = append(f.synced, node.HasSynced)
	}
	pod, err := pods.AddEventHandler(f.pods())
	if err != nil {
		return fmt.Errorf("add pod event handler: %w", err)
	}
	f.synced = append(f.synced, pod.HasSynced)
	f.attached = true
	return nil
}

// HasSynced reports whether the tracker has been given everything that the
// informers found in their first lists. Nothing may be decided before that.
func (f *Feed) HasSynced() bool {
	for _, synced := range f.synced {
		if !synced() {
			return false
		}
	}
	return f.attached
}

func (f *Feed) nodes() toolscache.ResourceEventHandler {
	changed := func(name string, pods []tracker.Key) {
		f.listener.PodsChanged(pods)
		f.listener.NodeChanged(name)
	}
	return handle(tracker.NodeOf,
		func(node tracker.Node) { changed(node.Name, f.tracker.SetNode(node, f.clock.Now())) },
		func(node tracker.Node) { changed(node.Name, f.tracker.DeleteNode(node.Name, node.UID)) }, nil)
}

func (f *Feed) pods() toolscache.ResourceEventHandler {
	return handle(tracker.PodOf,
		func(pod tracker.Pod) {
			if pod.Terminating {
				f.leave(pod.Key)
			}
			f.listener.PodsChanged(f.tracker.SetPod(pod))
		},
		func(pod tracker.Pod) {
			f.leave(pod.Key)
			f.listener.PodsChanged(f.tracker.DeletePod(pod.Key))
		}, nil)
}

func (f *Feed) leave(key tracker.Key) {
	if f.leaving != nil {
		f.leaving(key)
	}
}
