package checks

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// NodeDisruption holds evictions because of nodes that are down while all nodes are down.
//
// A failure of all nodes at once is less likely than a failure of the controller that watches them.
// So when no node of any zone is ready, Kubernetes' node lifecycle controller removes its NoExecute
// taints from all nodes and adds none; when the first node is ready again, all others get their full
// time again. Tollgate cannot rely on that, because the taints are removed one by one, some may stay,
// and that controller may have failed itself. NodeDisruption decides the same from the taints (J03).
//
// If a single zone is down, the rate of that controller protects it (J04): it taints 0.1 nodes per
// second, and if most of a zone is down 0.01, or none if the zone is small. An EvictionPolicy with a
// pace limits how fast the pods leave.
//
// Only the taints not-ready and unreachable of that controller count. A taint of a user stays in
// force whether or not the node is ready.
//
// The zero NodeDisruption has observed no node. Its state is in memory: the next leader does not know
// of a recovery before its leadership. All methods are goroutine-safe.
type NodeDisruption struct {
	mu      sync.RWMutex
	stopped bool
	// since is when all nodes were first observed to be down, and recovered when the first one
	// was ready again.
	since     time.Time
	recovered time.Time
}

// glitch is the minimum time for which all nodes have to be down before their return is a recovery.
// During a relist, the only known node may be down for a moment.
const glitch = 2 * time.Second

// Reset removes all observations. A new leader calls it, because it observed no nodes while another
// replica led.
func (s *NodeDisruption) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped, s.since, s.recovered = false, time.Time{}, time.Time{}
}

// Observe records the number of nodes, and of nodes that are down, at now by the clock of the API
// server. It returns true if evictions are held from now on, or not any more. A cluster without nodes
// does not count as down.
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

// Holds reports whether evictions because of a taint are held.
func (s *NodeDisruption) Holds(taint *tracker.Taint) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stopped && IsSystemTaint(taint)
}

// Recount returns the taints of a node for a decision: the time of not-ready and unreachable taints
// that are older than the last recovery starts at the recovery. It does not write to taints.
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
