package informer

import "github.com/tollgate-dev/tollgate/tracker"

// BudgetFeed passes the events of PodDisruptionBudgets on to a tracker, and what they
// changed to the listener of OnBudget.
type BudgetFeed struct {
	subscriptions
	tracker *tracker.Tracker
	// eased is the listener of OnBudget; nil for none.
	eased func(keys []tracker.Key)
}

// NewBudgetFeed returns a feed that is not attached to an informer yet.
func NewBudgetFeed(known *tracker.Tracker) *BudgetFeed { return &BudgetFeed{tracker: known} }

// OnBudget has tell called with the pods that have to leave and that a budget may let go
// now although it did not before, if there are any: it allows more, selects others, or is
// gone. It is called from an event handler and must not block. OnBudget is called before
// Attach.
func (f *BudgetFeed) OnBudget(tell func(keys []tracker.Key)) { f.eased = tell }

// Attach subscribes to an informer. It is called once, before HasSynced.
func (f *BudgetFeed) Attach(budgets source) error {
	return f.add("PodDisruptionBudget", budgets, handle(tracker.BudgetOf,
		func(budget tracker.Budget) { f.tell(f.tracker.SetBudget(budget)) },
		func(budget tracker.Budget) {
			f.tell(f.tracker.DeleteBudget(budget.Namespace, budget.Name, budget.UID))
		}, nil))
}

func (f *BudgetFeed) tell(keys []tracker.Key) {
	if f.eased != nil && len(keys) > 0 {
		f.eased(keys)
	}
}
