package preview

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// longestWindow is how long the ledger keeps pods that left: the longest window that a
	// policy can have.
	longestWindow = 24 * time.Hour
	// mostLeft is how many pods that left the ledger keeps. It removes the oldest first.
	mostLeft = 100_000
	// unseenFor is how long an admitted write counts although no watch has reported it.
	// Watches report writes within a second; a write that fails after admission counts no
	// longer than that.
	unseenFor = 10 * time.Second
)

// Ledger counts the pods that taints have hit. Every replica has its own: it records the
// pods that leave, and the writes that this replica admits. All methods are
// goroutine-safe.
type Ledger struct {
	view  *View
	clock clock.PassiveClock
	most  int

	mu sync.Mutex
	// left are the pods that left, the oldest first. Its elements do not change, so that
	// they can be read without the lock.
	left  []*departure
	known sets.Set[tracker.Key]
	// admitted are the admitted writes that watches may not have reported, the oldest
	// first.
	admitted []*Admission
	number   uint64
}

// departure is a pod that began to leave, and the taints because of which it had to,
// whether or not it left because of them.
type departure struct {
	key  tracker.Key
	at   time.Time
	hits []Hit
}

// Admission is a write that was admitted.
type Admission struct {
	pods   []Struck
	until  time.Time
	number uint64
	// approvals are those that the write uses. The mutex of the ledger guards them.
	approvals []types.UID
}

// NewLedger returns a ledger. Of the view it uses the tracker, the rules and the policies:
// pods that they protect are not hit. The clock is that of the API server.
func NewLedger(view *View, clk clock.PassiveClock) *Ledger {
	return &Ledger{view: view, clock: clk, most: mostLeft, known: sets.Set[tracker.Key]{}}
}

// Leaving records that a pod is being deleted or is gone. It is called before the
// tracker is updated, because the taints of a claim are removed soon after, and may be
// called again.
func (l *Ledger) Leaving(key tracker.Key) {
	situation, ok := l.view.Tracker.Lookup(key)
	if !ok {
		return
	}
	treatments := l.view.treatments()
	found := treatments.hits(&situation)
	if len(found) == 0 {
		return
	}
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known.Has(key) {
		return
	}
	// Pods that left too long ago are removed, and the oldest if there are too many.
	for len(l.left) > 0 && (len(l.left) >= l.most || now.Sub(l.left[0].at) > longestWindow) {
		delete(l.known, l.left[0].key)
		l.left = l.left[1:]
	}
	l.known.Insert(key)
	l.left = append(l.left, &departure{key: key, at: now, hits: found})
}

// Admit records that a write which hits pods is about to be admitted.
func (l *Ledger) Admit(pods []Struck) *Admission {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	admission := &Admission{pods: pods, until: now.Add(unseenFor), number: l.number}
	l.admitted = append(l.unseen(now), admission)
	return admission
}

// unseen returns the admitted writes that watches may not have reported at now. The caller
// holds the mutex.
func (l *Ledger) unseen(now time.Time) []*Admission {
	return slices.DeleteFunc(slices.Clone(l.admitted), func(a *Admission) bool { return a.until.Before(now) })
}

// Withdraw removes an admission, nil for none, of a write that was refused.
func (l *Ledger) Withdraw(admission *Admission) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.admitted = slices.DeleteFunc(l.admitted, func(a *Admission) bool { return a == admission })
}

// Reserve takes an approval for a write that hits pods; false if another admitted write,
// which may not be reported yet, uses it. A write that hits all of the pods is no other
// write: the API server repeats a write after a conflict. Own is nil for a write that is
// not recorded.
func (l *Ledger) Reserve(own *Admission, approval types.UID, pods []Struck) bool {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, admission := range l.unseen(now) {
		if admission != own && slices.Contains(admission.approvals, approval) && !admission.hits(pods) {
			return false
		}
	}
	if own != nil && !slices.Contains(own.approvals, approval) {
		own.approvals = append(own.approvals, approval)
	}
	return true
}

// hits reports whether the write hits all of the pods.
func (a *Admission) hits(pods []Struck) bool {
	struck := make(sets.Set[tracker.Key], len(a.pods))
	for i := range a.pods {
		struck.Insert(a.pods[i].Key)
	}
	return !slices.ContainsFunc(pods, func(pod Struck) bool { return !struck.Has(pod.Key) })
}

// Others counts the pods that other writes have hit, see Query: pods that are due
// because of a taint, pods that left when they were, and pods of admitted writes.
func (l *Ledger) Others(q Query) int {
	now := l.clock.Now()
	t := &tally{query: &q, now: now, pods: map[tracker.Key][]int{}}
	treatments := l.view.treatments()
	due := l.view.Tracker.ExposedSince(now.Add(-q.Window))
	for i := range due {
		t.lately(due[i].Pod.Key, treatments.hits(&due[i]))
	}
	l.mu.Lock()
	left, admitted := l.left, l.unseen(now)
	l.mu.Unlock()
	for _, pod := range left {
		t.lately(pod.key, pod.hits)
	}
	for _, admission := range admitted {
		if q.Own != nil && admission.number >= q.Own.number {
			continue
		}
		for i := range admission.pods {
			if pod := &admission.pods[i]; pod.By(q.Governs, now) {
				t.add(pod.Key, pod.Taints(q.Governs, now))
			}
		}
	}
	for i := range q.Except {
		delete(t.pods, q.Except[i].Key)
	}
	return t.count()
}

// Left counts the pods that left since a time while a taint with that key, from that
// node, rule or patch, made them. The UID of the source does not matter.
func (l *Ledger) Left(source tracker.Source, key string, since time.Time) int {
	l.mu.Lock()
	left := l.left
	l.mu.Unlock()
	count := 0
	for _, pod := range left {
		count += one(!pod.at.Before(since) && slices.ContainsFunc(pod.hits, func(h Hit) bool {
			return h.Taint.Key == key && h.Taint.From(source.Kind, source.Name)
		}))
	}
	return count
}
