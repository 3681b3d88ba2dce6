package evictor

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/act"
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
	// comesWithin is for how long a place is kept for a pod that was told of it.
	comesWithin = 5 * time.Second
)

// doors bound how many attempts ask the same PodDisruptionBudget at once. Those that have
// to wait do so without a worker, a turn or room in a breaker, so that a budget that many
// pods have slows down no others. All methods are goroutine-safe.
type doors struct {
	mu sync.Mutex
	// of are those of the budgets that are asked, by their UIDs.
	of map[types.UID]*door
}

// door is that of one budget.
type door struct {
	inside int
	// waiting are the pods that wait, the first first, each once.
	waiting []tracker.Key
	waits   map[tracker.Key]struct{}
	// told are pods that a place is kept for, and when they were told.
	told map[tracker.Key]time.Time
}

func newDoors() *doors { return &doors{of: map[types.UID]*door{}} }

// enter reports whether a pod may ask a budget now. Who has entered must leave; who may
// not is told when there is a place.
func (d *doors) enter(now time.Time, budget types.UID, key tracker.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.of[budget]
	if at == nil {
		at = &door{waits: map[tracker.Key]struct{}{}, told: map[tracker.Key]time.Time{}}
		d.of[budget] = at
	}
	_, told := at.told[key]
	if !told && at.room(now) <= 0 {
		if _, waits := at.waits[key]; !waits {
			at.waiting, at.waits[key] = append(at.waiting, key), struct{}{}
		}
		return false
	}
	delete(at.told, key)
	at.inside++
	return true
}

// leave says that a pod does not ask the budget any more, and returns who has to be told
// that there is a place: those who wait, as far as pending says that they still want to.
func (d *doors) leave(now time.Time, budget types.UID, pending func(tracker.Key) bool) []tracker.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.of[budget]
	at.inside--
	var told []tracker.Key
	for room := at.room(now); room > 0 && len(at.waiting) > 0; {
		key := at.waiting[0]
		at.waiting = at.waiting[1:]
		delete(at.waits, key)
		if pending(key) {
			at.told[key] = now
			told = append(told, key)
			room--
		}
	}
	d.sweep(now)
	return told
}

// sweep forgets the doors that nobody is behind, or may be soon; the caller holds the lock.
// Those who still wait there look again by themselves.
func (d *doors) sweep(now time.Time) {
	for budget, at := range d.of {
		if at.room(now) == askedAtOnce {
			delete(d.of, budget)
		}
	}
}

// room returns for how many pods there is a place that is kept for nobody.
func (d *door) room(now time.Time) int {
	for key, at := range d.told {
		if now.Sub(at) > comesWithin {
			delete(d.told, key)
		}
	}
	return askedAtOnce - d.inside - len(d.told)
}

// budgetOf returns the UID of the PodDisruptionBudget that is asked in an attempt, empty
// for none. Of several none is: the API server refuses that at once.
func (e *Evictor) budgetOf(goal *target) types.UID {
	if e.method(goal, &goal.cause, goal.treatment.Policy) != act.Evict {
		return ""
	}
	var only types.UID
	budgets := e.tracker.Budgets(goal.pod.Namespace)
	for i := range budgets {
		if !budgets[i].Guards(&goal.pod) {
			continue
		}
		if only != "" {
			return ""
		}
		only = budgets[i].UID
	}
	return only
}

// pending reports whether the eviction of a pod has been decided and is not over.
func (b *book) pending(key tracker.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[key] != nil
}
