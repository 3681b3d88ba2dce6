package preview

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// longestWindow is for how long it is remembered that a pod has left: the longest
	// window that a policy can have.
	longestWindow = 24 * time.Hour
	// mostLeft bounds the pods that are remembered. The oldest are forgotten first.
	mostLeft = 100_000
	// unseenFor is for how long a write that was admitted counts although it was not
	// seen. Writes are seen within a second; one that fails after all counts no longer.
	unseenFor = 10 * time.Second
)

// Ledger knows which pods taints have hit. It is fed with the pods that leave, by
// every replica for itself, and with the writes that this replica admits. All methods
// are goroutine-safe.
type Ledger struct {
	tracker *tracker.Tracker
	rules   decide.Rules
	clock   clock.PassiveClock
	most    int
	// treating is set before the ledger is used.
	treating treating

	mu sync.Mutex
	// left holds the pods that have left, in that order. Nothing in it is ever written
	// to, so that it can be read without the lock.
	left  []*departure
	known map[tracker.Key]struct{}
	// admitted holds the writes that may not be seen yet, in their order.
	admitted []*Admission
	number   uint64
}

// departure is a pod that began to leave, and the taints because of which it had to,
// whether or not it did because of them.
type departure struct {
	key  tracker.Key
	at   time.Time
	hits []Hit
}

// Admission is a write that was let through.
type Admission struct {
	pods   []Struck
	until  time.Time
	number uint64
	// approvals are those that the write uses. They are guarded by the ledger's mutex.
	approvals []types.UID
}

// NewLedger returns a ledger that tells the time by the clock of the API server.
func NewLedger(t *tracker.Tracker, rules decide.Rules, clk clock.PassiveClock) *Ledger {
	return &Ledger{tracker: t, rules: rules, clock: clk, most: mostLeft, known: map[tracker.Key]struct{}{}}
}

// WithPolicies makes the ledger know EvictionPolicies, as a View does by its Options: pods
// that they protect are not hit. It is called before anything else is, and returns l.
func (l *Ledger) WithPolicies(policies func() *eviction.Set, namespaceLabels func(name string) (labels.Labels, bool)) *Ledger {
	l.treating = treating{policies: policies, namespaceLabels: namespaceLabels}
	return l
}

// Leaving records that a pod is being deleted or is gone. It is called before the
// tracker hears of it, because the taints of a claim are gone soon after, and may be
// called again.
func (l *Ledger) Leaving(key tracker.Key) {
	situation, ok := l.tracker.Lookup(key)
	if !ok {
		return
	}
	found := hits(l.rules, l.treating.now(), &situation)
	if len(found) == 0 {
		return
	}
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, again := l.known[key]; again {
		return
	}
	l.forget(now)
	l.known[key] = struct{}{}
	l.left = append(l.left, &departure{key: key, at: now, hits: found})
}

// forget drops what is too old, and the oldest where there is no room for one more.
func (l *Ledger) forget(now time.Time) {
	gone := 0
	for gone < len(l.left) && (len(l.left)-gone >= l.most || now.Sub(l.left[gone].at) > longestWindow) {
		delete(l.known, l.left[gone].key)
		gone++
	}
	l.left = l.left[gone:]
}

// Admit records that a write which hits pods is about to be let through.
func (l *Ledger) Admit(pods []Struck) *Admission {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	admission := &Admission{pods: pods, until: now.Add(unseenFor), number: l.number}
	l.admitted = append(slices.DeleteFunc(slices.Clone(l.admitted), func(a *Admission) bool { return a.until.Before(now) }), admission)
	return admission
}

// Withdraw takes back an admission, nil for none, of a write that was refused.
func (l *Ledger) Withdraw(admission *Admission) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.admitted = slices.DeleteFunc(slices.Clone(l.admitted), func(a *Admission) bool { return a == admission })
}

// Reserve takes an approval for a write that hits pods, and reports whether it was to be
// had: one that another write uses, which was admitted and may not be seen yet, is not,
// unless that is this write too, which the API server repeats when another one came
// between. Own is nil for one that only asks.
func (l *Ledger) Reserve(own *Admission, approval types.UID, pods []Struck) bool {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, admission := range l.admitted {
		if admission != own && !admission.until.Before(now) && slices.Contains(admission.approvals, approval) && !admission.hits(pods) {
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
	struck := make(map[tracker.Key]struct{}, len(a.pods))
	for i := range a.pods {
		struck[a.pods[i].Key] = struct{}{}
	}
	for i := range pods {
		if _, ok := struck[pods[i].Key]; !ok {
			return false
		}
	}
	return true
}

// Others counts the pods that other writes have hit, see Query: pods that are due
// because of a taint, pods that left when they were, and pods of writes that have been
// admitted.
func (l *Ledger) Others(q Query) int {
	now := l.clock.Now()
	t := &tally{query: &q, now: now, pods: map[tracker.Key][]int{}}
	treatments := l.treating.now()
	due := l.tracker.ExposedSince(now.Add(-q.Window))
	for i := range due {
		t.lately(due[i].Pod.Key, hits(l.rules, treatments, &due[i]))
	}
	left, admitted := l.read()
	for _, pod := range left {
		t.lately(pod.key, pod.hits)
	}
	for _, admission := range admitted {
		if admission.until.Before(now) || (q.Own != nil && admission.number >= q.Own.number) {
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

func (l *Ledger) read() ([]*departure, []*Admission) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left, l.admitted
}

// Left counts the pods that left since then while a taint with that key, from that
// node, rule or patch, made them. The UID of the source does not matter.
func (l *Ledger) Left(source tracker.Source, key string, since time.Time) int {
	left, _ := l.read()
	count := 0
	for _, pod := range left {
		if !pod.at.Before(since) && slices.ContainsFunc(pod.hits, func(h Hit) bool {
			return h.Taint.Key == key && h.Taint.From(source.Kind, source.Name)
		}) {
			count++
		}
	}
	return count
}
