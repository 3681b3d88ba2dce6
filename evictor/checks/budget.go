package checks

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// askedAtOnce is the maximum number of concurrent attempts that ask one PodDisruptionBudget.
	// The API server writes an eviction into the status of the budget, with an optimistic lock:
	// of concurrent evictions one succeeds, and the others are retried half a second later
	// (EvictionsRetry in pkg/registry/core/pod/storage/eviction.go). With dozens, attempts time
	// out, and an eviction that timed out after it was written uses up the budget of other pods
	// for two minutes.
	askedAtOnce = 4
	// comesWithin is how long a place is reserved for a pod that was woken.
	comesWithin = 5 * time.Second
)

// Budgets limits the number of concurrent attempts that ask the same PodDisruptionBudget. A pod that
// waits occupies no worker, no token of a rate limit and no room in a breaker, so that a budget of
// many pods does not slow down others. It is goroutine-safe.
type Budgets struct {
	options BudgetOptions

	mu sync.Mutex
	// asked has the budgets that are asked or waited for, by UID.
	asked map[types.UID]*askedBudget
}

// BudgetOptions configures Budgets.
type BudgetOptions struct {
	// Of returns the PodDisruptionBudgets of a namespace.
	Of func(namespace string) []tracker.Budget
	// Pending reports whether a pod still has to leave.
	Pending func(tracker.Key) bool
	// Wake queues pods. It does not block.
	Wake func([]tracker.Key)
}

// askedBudget is a budget that attempts ask or wait for.
type askedBudget struct {
	// asking is the number of attempts that ask it.
	asking int
	// queue has the waiting pods in the order of arrival; waits has the same pods.
	queue []tracker.Key
	waits sets.Set[tracker.Key]
	// woken has the pods with a reserved place, and the time of the reservation.
	woken map[tracker.Key]time.Time
}

// NewBudgets returns a check without pods.
func NewBudgets(options BudgetOptions) *Budgets {
	return &Budgets{options: options, asked: map[types.UID]*askedBudget{}}
}

// Ask is a Check.
func (b *Budgets) Ask(now Now, of *Eviction) Answer {
	budget := b.only(of)
	if budget == "" {
		return Answer{}
	}
	if !b.enter(now.Local, budget, of.Pod.Key) {
		return Answer{Wait: Recheck}
	}
	return Answer{Undo: func(now Now, _ End) {
		if keys := b.leave(now.Local, budget); len(keys) > 0 {
			b.options.Wake(keys)
		}
	}}
}

// only returns the UID of the PodDisruptionBudget that an eviction asks, empty for none. With several
// budgets it returns none, because the API server refuses the eviction at once.
func (b *Budgets) only(of *Eviction) types.UID {
	if !of.AsksBudget {
		return ""
	}
	var only types.UID
	budgets := b.options.Of(of.Pod.Namespace)
	for i := range budgets {
		if !budgets[i].Guards(of.Pod) {
			continue
		}
		if only != "" {
			return ""
		}
		only = budgets[i].UID
	}
	return only
}

// enter reports whether a pod may ask a budget now. If not, it is woken when there is room.
func (b *Budgets) enter(now time.Time, budget types.UID, key tracker.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.asked[budget]
	if at == nil {
		at = &askedBudget{waits: sets.Set[tracker.Key]{}, woken: map[tracker.Key]time.Time{}}
		b.asked[budget] = at
	}
	_, woken := at.woken[key]
	if !woken && at.places(now) <= 0 {
		if !at.waits.Has(key) {
			at.queue, at.waits = append(at.queue, key), at.waits.Insert(key)
		}
		return false
	}
	delete(at.woken, key)
	at.asking++
	return true
}

// leave is called when a pod has asked a budget. It returns the pods that may ask next.
func (b *Budgets) leave(now time.Time, budget types.UID) []tracker.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.asked[budget]
	at.asking--
	var woken []tracker.Key
	for places := at.places(now); places > 0 && len(at.queue) > 0; {
		key := at.queue[0]
		at.queue = at.queue[1:]
		delete(at.waits, key)
		if b.options.Pending(key) {
			at.woken[key] = now
			woken = append(woken, key)
			places--
		}
	}
	// Budgets that no attempt asks are removed. Pods that wait for them ask again after Recheck.
	maps.DeleteFunc(b.asked, func(_ types.UID, at *askedBudget) bool { return at.places(now) == askedAtOnce })
	return woken
}

// places returns the number of free places without a reservation.
func (a *askedBudget) places(now time.Time) int {
	for key, at := range a.woken {
		if now.Sub(at) > comesWithin {
			delete(a.woken, key)
		}
	}
	return askedAtOnce - a.asking - len(a.woken)
}
