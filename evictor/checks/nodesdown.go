package checks

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// NodeDisruption stops evictions because of nodes that are not ready when all nodes are.
//
// A failure of all nodes at once is less likely than a failure of the controller that
// watches them. So Kubernetes' node lifecycle controller, once no node of any zone is
// ready, removes its NoExecute taints from all nodes and adds none; when the first node is
// back it gives all others their full time again. Tollgate cannot rely on that: the taints
// are removed one by one, some may stay, and that controller may be what is broken. The
// same is decided here from the taints alone (J03).
//
// A zone that is down is left to that controller (J04): it taints 0.1 nodes in a second,
// and where most of a zone is down 0.01, or none if the zone is small. An EvictionPolicy
// with a pace bounds how fast the pods then leave.
//
// Only the taints not-ready and unreachable of that controller count. A taint that a user
// adds stays in force whether or not the node is ready.
//
// The zero NodeDisruption has seen no node. The state is in memory: the next leader does
// not know of a recovery before its term. All methods are safe for concurrent use.
type NodeDisruption struct {
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
func (s *NodeDisruption) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped, s.since, s.recovered = false, time.Time{}, time.Time{}
}

// Observe records how many nodes there are and how many of them are down, at now by the clock
// of the API server. It returns true if evictions because of such taints are stopped from now on, or
// resumed. No nodes at all are not nodes that are down.
func (s *NodeDisruption) Observe(now time.Time, nodes, down int) (changed bool) {
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
		return false
	}
	s.stopped = stopped
	switch {
	case stopped:
		s.since = now
	case now.Sub(s.since) >= glitch:
		s.recovered = now
	}
	return true
}

// Holds reports whether evictions because of a taint are stopped.
func (s *NodeDisruption) Holds(taint *tracker.Taint) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stopped && IsSystemTaint(taint)
}

// Recount returns the taints of a node as they are to be decided on: those of the
// system that stood there before the last recovery count from then. Taints is returned
// as it is when there are none such, and never written to.
func (s *NodeDisruption) Recount(taints []tracker.Taint) []tracker.Taint {
	s.mu.RLock()
	recovered := s.recovered
	s.mu.RUnlock()
	if recovered.IsZero() {
		return taints
	}
	copied := false
	for i := range taints {
		if !IsSystemTaint(&taints[i]) || !taints[i].TimeAdded.Before(recovered) {
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

// IsSystemTaint reports whether a taint is one by which the node lifecycle controller evicts.
func IsSystemTaint(taint *tracker.Taint) bool {
	return taint.Source.Kind == tracker.SourceNode &&
		(taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable)
}
