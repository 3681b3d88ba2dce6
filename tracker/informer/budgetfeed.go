package informer

import (
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/tracker"
)

// BudgetFeed passes what happens to PodDisruptionBudgets on to a tracker, and what that
// changed to whoever asked for it.
type BudgetFeed struct {
	tracker *tracker.Tracker
	// eased is told of pods, nil for nobody.
	eased  func(keys []tracker.Key)
	synced toolscache.InformerSynced
}

// NewBudgetFeed returns a feed that is not attached to an informer yet.
func NewBudgetFeed(known *tracker.Tracker) *BudgetFeed {
	return &BudgetFeed{tracker: known, synced: func() bool { return false }}
}

// OnBudget has tell called with the pods that have to leave and that a budget may let go
// now although it did not before, if there are any: it allows more, selects others, or is
// gone. It is called from an event handler and must not block. OnBudget is called before
// Attach.
func (f *BudgetFeed) OnBudget(tell func(keys []tracker.Key)) { f.eased = tell }

// Attach subscribes to an informer. It is called once, before HasSynced.
func (f *BudgetFeed) Attach(budgets source) error {
	registration, err := budgets.AddEventHandler(handle(tracker.BudgetOf,
		func(budget tracker.Budget) { f.tell(f.tracker.SetBudget(budget)) },
		func(budget tracker.Budget) {
			f.tell(f.tracker.DeleteBudget(budget.Namespace, budget.Name, budget.UID))
		}, nil))
	if err != nil {
		return fmt.Errorf("add PodDisruptionBudget event handler: %w", err)
	}
	f.synced = registration.HasSynced
	return nil
}

func (f *BudgetFeed) tell(keys []tracker.Key) {
	if f.eased != nil && len(keys) > 0 {
		f.eased(keys)
	}
}

// HasSynced reports whether the tracker has been given all budgets of the first list.
func (f *BudgetFeed) HasSynced() bool { return f.synced() }
