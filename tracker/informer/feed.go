package informer

import (
	"fmt"
	"slices"

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
	subscriptions
	tracker  *tracker.Tracker
	listener listener
	clock    clock.PassiveClock
	// leaving is told of pods that go.
	leaving func(key tracker.Key)
}

// NewFeed returns a feed that is not attached to any informer yet.
func NewFeed(known *tracker.Tracker, listener listener, clk clock.PassiveClock) *Feed {
	return &Feed{tracker: known, listener: listener, clock: clk, leaving: func(tracker.Key) {}}
}

// OnLeaving has leave called with each pod that is being deleted or is gone, before the
// tracker hears of it: the taints that held for the pod can still be looked up then. It may be
// called several times with one pod. OnLeaving is called before Attach.
func (f *Feed) OnLeaving(leave func(key tracker.Key)) { f.leaving = leave }

// Attach subscribes to both informers. It is called once, before HasSynced. The
// informer of nodes may be nil: no node has a taint then.
func (f *Feed) Attach(nodes, pods source) error {
	if nodes != nil {
		changed := func(name string, keys []tracker.Key) {
			f.listener.PodsChanged(keys)
			f.listener.NodeChanged(name)
		}
		err := f.add("node", nodes, handle(tracker.NodeOf,
			func(node tracker.Node) { changed(node.Name, f.tracker.SetNode(node, f.clock.Now())) },
			func(node tracker.Node) { changed(node.Name, f.tracker.DeleteNode(node.Name, node.UID)) }, nil))
		if err != nil {
			return err
		}
	}
	err := f.add("pod", pods, handle(tracker.PodOf,
		func(pod tracker.Pod) {
			if pod.Terminating {
				f.leaving(pod.Key)
			}
			f.listener.PodsChanged(f.tracker.SetPod(pod))
		},
		func(pod tracker.Pod) {
			f.leaving(pod.Key)
			f.listener.PodsChanged(f.tracker.DeletePod(pod.Key))
		}, nil))
	if err != nil {
		f.subscriptions = nil
	}
	return err
}

// subscriptions are those of a feed.
type subscriptions []toolscache.ResourceEventHandlerRegistration

func (s *subscriptions) add(kind string, to source, handler toolscache.ResourceEventHandler) error {
	registration, err := to.AddEventHandler(handler)
	if err != nil {
		return fmt.Errorf("add %s event handler: %w", kind, err)
	}
	*s = append(*s, registration)
	return nil
}

// HasSynced reports whether the feed is attached and the tracker has been given all that the
// informers found in their first lists. Nothing may be decided before that.
func (s *subscriptions) HasSynced() bool {
	return len(*s) > 0 && !slices.ContainsFunc(*s, func(r toolscache.ResourceEventHandlerRegistration) bool { return !r.HasSynced() })
}
