// Package disruption stops evictions because of nodes that are not ready when that is
// said of every node.
//
// That all nodes fail at once is less likely than that whoever watches them is cut off.
// So Kubernetes' node lifecycle controller, once no node of any zone is ready, takes
// its NoExecute taints off all of them and puts none on; when the first node is back it
// gives all others their full time again. Tollgate cannot count on that: the taints
// come off one by one, some may stay, and that controller may be what is broken.
// Here the same is decided from the taints alone (J03).
//
// What one zone of several means is left to that controller (J04): it puts its taints
// on 0.1 nodes in a second, and where most of a zone is down on 0.01, or on none if the
// zone is small. An EvictionPolicy with a pace bounds how fast the pods then leave.
//
// Only the taints of that controller are meant, not-ready and unreachable. A taint that
// somebody has put on a node stays in force whether or not the node is ready.
package disruption

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Change is what an observation has changed.
type Change uint8

// The changes.
const (
	Unchanged Change = iota
	// Stopped means that evictions because of such taints are held from now on.
	Stopped
	// Resumed means that they go on; their deadlines count anew, unless the nodes were down
	// for a moment only.
	Resumed
)

// String returns the change as it is written in logs.
func (c Change) String() string {
	switch c {
	case Stopped:
		return "stopped"
	case Resumed:
		return "resumed"
	case Unchanged:
	}
	return "unchanged"
}

// State knows whether all nodes are down, and since when they are not any more. The
// zero State has seen no node. It is in memory: who leads next does not know of a
// recovery before its term. All methods are goroutine-safe.
type State struct {
	mu      sync.RWMutex
	stopped bool
	// since is when all nodes were first seen to be down.
	since     time.Time
	recovered time.Time
}

// glitch is how long all nodes have to be down for their return to be a recovery. A relist
// of nodes may for a moment leave none but one that is down.
const glitch = 2 * time.Second

// Reset forgets what was observed. A leader calls it when its term begins: what a replica
// saw in an earlier term says nothing about the time between.
func (s *State) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped, s.since, s.recovered = false, time.Time{}, time.Time{}
}

// Observe takes in how many nodes there are and how many of them are down, at now by
// the clock of the API server. No nodes at all are not nodes that are down.
func (s *State) Observe(now time.Time, nodes, down int) Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recovered.After(now) {
		s.recovered = now // the clock was set back
	}
	if s.since.After(now) {
		s.since = now
	}
	stopped := nodes > 0 && down >= nodes
	if stopped == s.stopped {
		return Unchanged
	}
	s.stopped = stopped
	if stopped {
		s.since = now
		return Stopped
	}
	if now.Sub(s.since) >= glitch {
		s.recovered = now
	}
	return Resumed
}

// Stopped reports whether all nodes are down.
func (s *State) Stopped() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stopped
}

// Holds reports whether nobody is evicted because of a taint for now.
func (s *State) Holds(taint *tracker.Taint) bool {
	return IsSystem(taint) && s.Stopped()
}

// Recount returns the taints of a node as they are to be decided on: those of the
// system that stood there before the last recovery count from then. Taints is returned
// as it is when there are none such, and never written to.
func (s *State) Recount(taints []tracker.Taint) []tracker.Taint {
	recovered := s.lastRecovery()
	if recovered.IsZero() {
		return taints
	}
	copied := false
	for i := range taints {
		if !IsSystem(&taints[i]) || !taints[i].TimeAdded.Before(recovered) {
			continue
		}
		if !copied {
			taints, copied = slices.Clone(taints), true
		}
		// Seen as well: a bound on waiting counts from it.
		taints[i].TimeAdded, taints[i].Seen = recovered, recovered
	}
	return taints
}

func (s *State) lastRecovery() time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.recovered
}

// IsSystem reports whether a taint is one by which the node lifecycle controller evicts.
func IsSystem(taint *tracker.Taint) bool {
	return taint.Source.Kind == tracker.SourceNode &&
		(taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable)
}
