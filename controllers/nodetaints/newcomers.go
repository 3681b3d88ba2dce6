package nodetaints

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// latePolicyWindow is how long after the first attempt for a newcomer a policy that is
	// new to this replica still counts. Policies older than the node reach every replica
	// within it.
	latePolicyWindow = 10 * time.Second
	// nodeRate is the number of nodes per second that a limiter admits.
	nodeRate  = 10
	nodeBurst = 20
	// holdReportInterval is the delay between two events about one held node.
	holdReportInterval = 10 * time.Minute
)

// nodeStates is the state of nodes in one term of leadership. Event handlers and attempts
// use it concurrently.
type nodeStates struct {
	// heldCount is the metric of held nodes.
	heldCount prometheus.Gauge

	mu sync.Mutex // guards what is below
	// since is the time since which nodes may have been created that no leader has seen.
	since time.Time
	// uids are the UIDs, by name, of the nodes that attempts last read. An attempt can
	// store state of a node after its deletion event; the next attempt finds that the name
	// has no node, or another, and cleans up.
	uids      map[string]types.UID
	newcomers map[types.UID]*newcomer
	// Taints that evict pods have a limiter of their own: nodes that a limit holds back
	// must not delay the others.
	nonEvicting, evicting nodeLimiter
	// reported are the nodes whose taints are held back, with the time of the last report.
	reported map[types.UID]time.Time
}

// newcomer is the state of a node that is new, or has pending taints.
type newcomer struct {
	// until is the time, by the clock of this machine, until which taints can become
	// pending; zero before the first attempt.
	until time.Time
	// observed are the taints that the node has or had, and pending those to be added. No
	// taint is in both.
	observed, pending map[taintID]struct{}
}

// taintID identifies a taint of a node.
type taintID struct {
	key    string
	effect corev1.TaintEffect
}

// nodeLimiter limits the rate at which nodes are patched. A node that has to wait keeps its
// reservation, so that it is queued once and not after each other node.
type nodeLimiter struct {
	limit        *rate.Limiter
	reservations map[types.UID]time.Time
}

// reset removes all state.
func (s *nodeStates) reset(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = since
	s.uids, s.newcomers, s.reported = map[string]types.UID{}, map[types.UID]*newcomer{}, map[types.UID]time.Time{}
	for _, limiter := range []*nodeLimiter{&s.nonEvicting, &s.evicting} {
		*limiter = nodeLimiter{rate.NewLimiter(nodeRate, nodeBurst), map[types.UID]time.Time{}}
	}
	s.heldCount.Set(0)
}

// read records that an attempt read a node, which has no UID if it does not exist. It
// removes the state of the node that had the name before.
func (s *nodeStates) read(name string, uid types.UID) {
	s.mu.Lock()
	before, ok := s.uids[name]
	if uid == "" {
		delete(s.uids, name)
	} else {
		s.uids[name] = uid
	}
	s.mu.Unlock()
	if ok && before != uid {
		s.remove(before)
	}
}

// remove removes a node.
func (s *nodeStates) remove(uid types.UID) {
	s.clearWaiting(uid)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.newcomers, uid)
}

// clearWaiting removes the reservations and the hold of a node that lacks nothing.
func (s *nodeStates) clearWaiting(uid types.UID) {
	s.clearHold(uid)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nonEvicting.reservations, uid)
	delete(s.evicting.reservations, uid)
}

// clearHold removes the hold of a node.
func (s *nodeStates) clearHold(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reported, uid)
	s.heldCount.Set(float64(len(s.reported)))
}

// hold records that the taints of a node are held back, and returns whether to report it.
func (s *nodeStates) hold(uid types.UID, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reported, ok := s.reported[uid]; ok && now.Sub(reported) < holdReportInterval {
		return false
	}
	s.reported[uid] = now
	s.heldCount.Set(float64(len(s.reported)))
	return true
}

// reserve returns how long a node has to wait. Zero consumes its reservation.
func (s *nodeStates) reserve(limiter *nodeLimiter, uid types.UID, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, waits := limiter.reservations[uid]
	if !waits {
		at = now.Add(limiter.limit.ReserveN(now, 1).DelayFrom(now))
	}
	if wait := at.Sub(now); wait > 0 {
		limiter.reservations[uid] = at
		return wait
	}
	delete(limiter.reservations, uid)
	return 0
}

// add records a node that may be a newcomer: it was created while this replica led, which
// created says, or while there was no leader.
func (s *nodeStates) add(node *corev1.Node, created bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newcomers[node.UID] == nil && (created || !node.CreationTimestamp.Time.Before(s.since)) {
		s.newcomers[node.UID] = &newcomer{observed: map[taintID]struct{}{}, pending: map[taintID]struct{}{}}
	}
}

// observe records the taints of a node. They are not added again. It reports whether the
// node is a newcomer.
func (s *nodeStates) observe(uid types.UID, taints []corev1.Taint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.newcomers[uid]
	if n == nil {
		return false
	}
	for i := range taints {
		id := taintID{taints[i].Key, taints[i].Effect}
		n.observed[id] = struct{}{}
		delete(n.pending, id)
	}
	return true
}

// require reports whether a registered taint that a node lacks is to be added, and marks
// it as pending. A pending taint stays so until the node has it.
func (s *nodeStates) require(uid types.UID, id taintID, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.newcomers[uid]
	if n == nil {
		return false
	}
	_, observed := n.observed[id]
	_, pending := n.pending[id]
	if observed || !pending && !n.until.IsZero() && !now.Before(n.until) {
		return false
	}
	n.pending[id] = struct{}{}
	return true
}

// finish records that an attempt has called require for all taints of the current
// policies. It returns how much longer later policies count.
func (s *nodeStates) finish(uid types.UID, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.newcomers[uid]
	if n == nil {
		return 0
	}
	if n.until.IsZero() {
		n.until = now.Add(latePolicyWindow)
	}
	left := n.until.Sub(now)
	if left <= 0 && len(n.pending) == 0 {
		delete(s.newcomers, uid)
	}
	return max(left, 0)
}
