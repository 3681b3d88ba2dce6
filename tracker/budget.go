package tracker

import (
	"cmp"
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Budget is the kept part of a PodDisruptionBudget. No taint is without effect because
// of one: Kubernetes deletes past them, so they only tell whose pods go.
type Budget struct {
	Namespace       string
	Name            string
	UID             types.UID
	ResourceVersion string
	// Selector selects the pods of the namespace that are guarded.
	Selector labels.Selector
	// Allowed is how many of those pods may go at the moment.
	Allowed int32
}

// BudgetOf returns the kept part of budget. An empty selector is every pod, none is
// no pod, and so is one that cannot be read: the Eviction API passes over such a
// budget as well.
func BudgetOf(budget *policyv1.PodDisruptionBudget) Budget {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}
	return Budget{
		Namespace: budget.Namespace, Name: budget.Name, UID: budget.UID, ResourceVersion: budget.ResourceVersion,
		Selector: selector, Allowed: budget.Status.DisruptionsAllowed,
	}
}

// Guards reports whether the budget is about a pod.
func (b *Budget) Guards(pod *Pod) bool {
	return b.Namespace == pod.Namespace && b.Selector.Matches(pod.Labels())
}

// SetBudget records a PodDisruptionBudget. It returns the keys of the pods for which a
// NoExecute taint holds and which may go now although they might not before, in no
// order: the budget allows more, or selects others. A budget that is seen for the first
// time allows nothing that was not allowed before.
func (t *Tracker) SetBudget(budget Budget) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	budgets := t.budgets[budget.Namespace]
	at, found := findBudget(budgets, budget.Name)
	var old *Budget
	next := at
	if found {
		if old = &budgets[at]; Older(budget.ResourceVersion, old.ResourceVersion) {
			return nil
		}
		next++
	}
	// The list is replaced, because it is handed out.
	t.budgets[budget.Namespace] = slices.Concat(budgets[:at], []Budget{budget}, budgets[next:])
	return t.eased(old, &budget)
}

// DeleteBudget forgets the budget of that name and UID; one that was created anew
// since stays. It returns the keys of pods as SetBudget does.
func (t *Tracker) DeleteBudget(namespace, name string, uid types.UID) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	budgets := t.budgets[namespace]
	at, found := findBudget(budgets, name)
	if !found || budgets[at].UID != uid {
		return nil
	}
	old := &budgets[at]
	if len(budgets) == 1 {
		delete(t.budgets, namespace)
	} else {
		t.budgets[namespace] = slices.Delete(slices.Clone(budgets), at, at+1)
	}
	return t.eased(old, nil)
}

// eased returns the keys of the pods that one version of a budget may have kept from
// going and the next one, nil for none, does not. It costs a look at each pod of the namespace.
func (t *Tracker) eased(old, budget *Budget) []Key {
	if old == nil || budget != nil && old.UID == budget.UID && sameSelector(old.Selector, budget.Selector) && budget.Allowed <= old.Allowed {
		return nil
	}
	var keys []Key
	for _, pod := range t.pods[old.Namespace] {
		if old.Guards(pod) && t.exposed(pod) {
			keys = append(keys, pod.Key)
		}
	}
	return keys
}

// Budgets returns the PodDisruptionBudgets of a namespace, by name. They must not be
// written to.
func (t *Tracker) Budgets(namespace string) []Budget {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.budgets[namespace]
}

// sameSelector reports whether two selectors select the same. Those of every pod and of
// none read alike.
func sameSelector(a, b labels.Selector) bool {
	return a.Empty() == b.Empty() && a.String() == b.String()
}

func findBudget(budgets []Budget, name string) (at int, found bool) {
	return slices.BinarySearchFunc(budgets, name, func(b Budget, name string) int { return cmp.Compare(b.Name, name) })
}
