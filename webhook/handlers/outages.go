package handlers

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

// Outages remembers since when nodes have failed whose taints for that were taken off, as the
// node lifecycle controller does after each of its restarts. It is an event handler of
// nodes, and remembers one outage a node at most, in memory: no user can write it, and an outage
// that a replica has not seen begins anew. It is safe for concurrent use.
//
// While all nodes have failed that controller takes its taints off on purpose, and
// counts anew when the first of them is back; so nothing is remembered then.
type Outages struct {
	mu sync.Mutex
	// working are the nodes that have not failed.
	working sets.Set[types.UID]
	outages map[types.UID]validation.Outage
}

// NewOutages returns Outages that know no nodes.
func NewOutages() *Outages {
	return &Outages{working: sets.Set[types.UID]{}, outages: map[types.UID]validation.Outage{}}
}

// Since returns since when a node has been tainted because it failed, if it is tainted for
// that with this condition; zero if that is not known.
func (o *Outages) Since(uid types.UID, ready validation.Ready) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.working) == 0 {
		return time.Time{}
	}
	return o.outages[uid].SinceFor(ready)
}

// OnAdd implements cache.ResourceEventHandler.
func (o *Outages) OnAdd(obj any, _ bool) { o.set(nil, obj.(*corev1.Node)) }

// OnUpdate implements cache.ResourceEventHandler.
func (o *Outages) OnUpdate(old, obj any) {
	before, node := old.(*corev1.Node), obj.(*corev1.Node)
	if before.UID != node.UID { // It was created anew while there was no watch.
		o.OnDelete(before)
		before = nil
	}
	o.set(before, node)
}

// OnDelete implements cache.ResourceEventHandler.
func (o *Outages) OnDelete(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.working, node.UID)
	delete(o.outages, node.UID)
	o.forget()
}

// set takes in a node as it is now and, unless it is nil, as it was. While it is tainted its
// outage is that of the taints; when it is not, it stays the same until the condition
// changes.
func (o *Outages) set(before, node *corev1.Node) {
	ready := validation.ReadyOf(node.Status.Conditions)
	o.mu.Lock()
	defer o.mu.Unlock()
	if ready.Failed() {
		delete(o.working, node.UID)
	} else {
		o.working.Insert(node.UID)
	}
	for _, seen := range []*corev1.Node{before, node} {
		if seen == nil {
			continue
		}
		if outage, tainted := validation.OutageOf(seen.Spec.Taints, validation.ReadyOf(seen.Status.Conditions)); tainted {
			o.outages[node.UID] = outage
		}
	}
	if o.outages[node.UID].SinceFor(ready).IsZero() {
		delete(o.outages, node.UID)
	}
	o.forget()
}

// forget forgets all while all nodes have failed. The lock is held.
func (o *Outages) forget() {
	if len(o.working) == 0 {
		clear(o.outages)
	}
}
