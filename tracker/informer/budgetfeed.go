package informer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/tracker"
)

// budgetStore is the part of a tracker that PodDisruptionBudgets are fed to.
type budgetStore interface {
	SetBudget(budget tracker.Budget) []tracker.Key
	DeleteBudget(namespace, name string, uid types.UID) []tracker.Key
}

// BudgetFeed passes what happens to PodDisruptionBudgets on to a tracker, and what that
// changed to whoever asked for it.
type BudgetFeed struct {
	store budgetStore
	// eased is told of pods, nil for nobody.
	eased  func(keys []tracker.Key)
	synced toolscache.InformerSynced
}

// NewBudgetFeed returns a feed that is not attached to an informer yet.
func NewBudgetFeed(store budgetStore) *BudgetFeed {
	return &BudgetFeed{store: store, synced: func() bool { return false }}
}

// OnBudget has tell called with the pods that have to leave and that a budget may let go
// now although it did not before, if there are any: it allows more, selects others, or is
// gone. It is called from an event handler and must not block. OnBudget is called before
// Attach.
func (f *BudgetFeed) OnBudget(tell func(keys []tracker.Key)) { f.eased = tell }

// Attach subscribes to an informer. It is called once, before HasSynced.
func (f *BudgetFeed) Attach(budgets source) error {
	registration, err := budgets.AddEventHandler(&handler[tracker.Budget]{
		read:    readBudget,
		uid:     func(budget *tracker.Budget) types.UID { return budget.UID },
		version: func(budget *tracker.Budget) string { return budget.ResourceVersion },
		set:     func(budget tracker.Budget) { f.tell(f.store.SetBudget(budget)) },
		drop:    func(budget tracker.Budget) { f.tell(f.store.DeleteBudget(budget.Namespace, budget.Name, budget.UID)) },
	})
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
