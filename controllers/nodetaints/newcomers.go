package nodetaints

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/policy/taint"
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
	observed, pending sets.Set[taintID]
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
	before := s.uids[name]
	s.uids[name] = uid
	if uid == "" {
		delete(s.uids, name)
	}
	s.mu.Unlock()
	if before != uid {
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

// clearWaiting removes the reservations and the hold of a node that lacks nothing, or
// nothing that evicts pods.
func (s *nodeStates) clearWaiting(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nonEvicting.reservations, uid)
	delete(s.evicting.reservations, uid)
	delete(s.reported, uid)
	s.heldCount.Set(float64(len(s.reported)))
}

// hold records that the taints of a node are held back, and returns whether to report it.
func (s *nodeStates) hold(uid types.UID, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.reported[uid]) < holdReportInterval {
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
		s.newcomers[node.UID] = &newcomer{observed: sets.New[taintID](), pending: sets.New[taintID]()}
	}
}

// observe records the taints of a node. They are not added again.
func (s *nodeStates) observe(node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.newcomers[node.UID]; n != nil {
		n.observe(node.Spec.Taints)
	}
}

func (n *newcomer) observe(taints []corev1.Taint) {
	for i := range taints {
		id := taintID{taints[i].Key, taints[i].Effect}
		n.observed.Insert(id)
		n.pending.Delete(id)
	}
}

// owed returns those of the missing taints that an attempt has to add to a node, without
// and with effect NoExecute. Without reconcile, only a newcomer gets a taint, and none that
// it had before: the taint is pending until the node has it. left is how much longer later
// policies count.
func (s *nodeStates) owed(node *corev1.Node, missing []taint.Registered, now time.Time) (nonEvicting, evicting []taint.Registered, left time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.newcomers[node.UID]
	if n != nil {
		n.observe(node.Spec.Taints)
	}
	for _, r := range missing {
		if !r.Reconcile {
			id := taintID{r.Taint.Key, r.Taint.Effect}
			// The policy must be at least as old as the node, in whole seconds.
			if n == nil || node.CreationTimestamp.Before(&r.Created) || n.observed.Has(id) ||
				!n.pending.Has(id) && !n.until.IsZero() && !now.Before(n.until) {
				continue
			}
			n.pending.Insert(id)
		}
		if r.Taint.Effect == corev1.TaintEffectNoExecute {
			evicting = append(evicting, r)
		} else {
			nonEvicting = append(nonEvicting, r)
		}
	}
	if n == nil {
		return nonEvicting, evicting, 0
	}
	if n.until.IsZero() {
		n.until = now.Add(latePolicyWindow)
	}
	left = max(n.until.Sub(now), 0)
	if left == 0 && len(n.pending) == 0 {
		delete(s.newcomers, node.UID)
	}
	return nonEvicting, evicting, left
}
