package checks

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// askedAtOnce is how many attempts ask one PodDisruptionBudget at once. The API server
	// counts an eviction in the status of the budget, by an optimistic lock: of those that
	// come together one is counted, and each other tries again half a second later
	// (EvictionsRetry in pkg/registry/core/pod/storage/eviction.go). With dozens, attempts
	// last longer than they may, and one that was given up after it was counted takes its
	// neighbours a place for two minutes.
	askedAtOnce = 4
	// comesWithin is for how long a place is kept for a pod that was woken.
	comesWithin = 5 * time.Second
)

// Budgets bounds how many attempts ask the same PodDisruptionBudget at once. Pods that have to
// wait hold no worker, no token of a rate and no room in a breaker, so that a budget of many pods
// slows down no others. It is safe for concurrent use.
type Budgets struct {
	options BudgetOptions

	mu sync.Mutex
	// asked has the budgets that are asked or waited for, by UID.
	asked map[types.UID]*askedBudget
}

// BudgetOptions are what Budgets needs.
type BudgetOptions struct {
	// Of returns the PodDisruptionBudgets of a namespace.
	Of func(namespace string) []tracker.Budget
	// Pending reports whether a pod still has to leave.
	Pending func(tracker.Key) bool
	// Wake has pods asked again. It does not block.
	Wake func([]tracker.Key)
}

// askedBudget is one budget.
type askedBudget struct {
	// asking is how many attempts ask it.
	asking int
	// queue are the pods that wait, in the order in which they came; waits has the same pods.
	queue []tracker.Key
	waits map[tracker.Key]struct{}
	// woken are the pods that a place is kept for, and since when.
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

// only returns the UID of the PodDisruptionBudget that an eviction asks, empty for none. With
// several none is asked: the API server refuses that at once.
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

// enter reports whether a pod may ask a budget now. If not, it is woken when there is a place.
func (b *Budgets) enter(now time.Time, budget types.UID, key tracker.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.asked[budget]
	if at == nil {
		at = &askedBudget{waits: map[tracker.Key]struct{}{}, woken: map[tracker.Key]time.Time{}}
		b.asked[budget] = at
	}
	_, woken := at.woken[key]
	if !woken && at.places(now) <= 0 {
		if _, waits := at.waits[key]; !waits {
			at.queue, at.waits[key] = append(at.queue, key), struct{}{}
		}
		return false
	}
	delete(at.woken, key)
	at.asking++
	return true
}

// leave ends that a pod asks a budget, and returns the pods that there are places for now.
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
	b.sweep(now)
	return woken
}

// sweep deletes the budgets that no attempt asks. Pods that wait for them ask again after
// Recheck. The caller holds the lock.
func (b *Budgets) sweep(now time.Time) {
	for budget, at := range b.asked {
		if at.places(now) == askedAtOnce {
			delete(b.asked, budget)
		}
	}
}

// places returns how many places there are that are kept for no pod.
func (a *askedBudget) places(now time.Time) int {
	for key, at := range a.woken {
		if now.Sub(at) > comesWithin {
			delete(a.woken, key)
		}
	}
	return askedAtOnce - a.asking - len(a.woken)
}
