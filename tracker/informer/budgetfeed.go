package informer

import "github.com/tollgate-dev/tollgate/tracker"

// BudgetFeed passes the events of PodDisruptionBudgets on to a tracker, and what they
// changed to a listener.
type BudgetFeed struct {
	subscriptions
	tracker *tracker.Tracker
	eased   func(keys []tracker.Key)
}

// NewBudgetFeed returns a feed that is not attached to an informer yet. Eased is told of the
// pods that have to leave and that a budget may let go now although it did not before, if
// there are any: it allows more, selects others, or is gone. It is called from an event
// handler and must not block.
func NewBudgetFeed(known *tracker.Tracker, eased func(keys []tracker.Key)) *BudgetFeed {
	return &BudgetFeed{tracker: known, eased: eased}
}

// Attach subscribes to an informer. It is called once, before HasSynced.
func (f *BudgetFeed) Attach(budgets source) error {
	return f.add("PodDisruptionBudget", budgets, handle(tracker.BudgetOf,
		func(budget tracker.Budget) { f.tell(f.tracker.SetBudget(budget)) },
		func(budget tracker.Budget) {
			f.tell(f.tracker.DeleteBudget(budget.Namespace, budget.Name, budget.UID))
		}, nil))
}

func (f *BudgetFeed) tell(keys []tracker.Key) {
	if len(keys) > 0 {
		f.eased(keys)
	}
}
