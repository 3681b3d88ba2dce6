package evictor

import (
	"errors"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
)

// The answers of the Eviction API about budgets, as the API server words them
// (pkg/registry/core/pod/storage/eviction.go).
var (
	errBudget     = budgetError(429, "The disruption budget web needs 2 healthy pods and has 2 currently")
	errBadBudget  = budgetError(403, "The disruption budget web does not allow evicting pods currently: pdb disruptions allowed is negative")
	errTwoBudgets = &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 500,
		Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
	}}
)

func budgetError(code int32, says string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	if code == 403 {
		err = apierrors.NewForbidden(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudget"}, "web", errors.New("negative"))
	}
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: says})
	return err
}

// nameIn returns the name of what an action is about. The fake client leaves it out of
// evictions.
func nameIn(action clienttesting.Action) string {
	if create, ok := action.(clienttesting.CreateActionImpl); ok {
		return create.Object.(metav1.Object).GetName()
	}
	return action.(interface{ GetName() string }).GetName()
}

// evictPod does what the Eviction API does, in its order: the pod is taken off its
// budget before anybody looks at the preconditions.
func (f *fakeAPI) evictPod(pod *corev1.Pod, eviction *policyv1.Eviction, group schema.GroupResource) (old, obj runtime.Object, err error) {
	var guarding []string
	for _, label := range []string{"app", "app2"} {
		if _, guarded := f.budgets[pod.Labels[label]]; guarded {
			guarding = append(guarding, pod.Labels[label])
		}
	}
	switch {
	case len(guarding) > 1:
		return nil, nil, errTwoBudgets
	case len(guarding) == 1 && f.budgets[guarding[0]] == 0:
		return nil, nil, errBudget
	case len(guarding) == 1:
		f.budgets[guarding[0]]--
	}
	marked := pod.DeepCopy()
	marked.Status.Conditions = append(marked.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
	})
	options := eviction.DeleteOptions
	if p := options.Preconditions; *p.UID != pod.UID || *p.ResourceVersion != pod.ResourceVersion {
		return nil, nil, apierrors.NewConflict(group, pod.Name, errors.New("precondition failed"))
	}
	return f.deletePod(marked, metav1.DeleteOptions{}, group)
}

// allow sets how many pods a budget lets go, and has the watch tell of it.
func (w *world) allow(budget string, pods int) {
	w.api.mu.Lock()
	w.api.budgets[budget] = pods
	w.api.version++
	version := strconv.Itoa(w.api.version)
	w.api.mu.Unlock()
	if w.evictor != nil {
		w.evictor.PodsChanged(w.tracker.SetBudget(newBudget(budget, version, pods)))
	}
	w.pass(0)
}

// setBudgetQuietly sets how many pods a budget lets go, and the watch does not tell of it.
func (f *fakeAPI) setBudgetQuietly(budget string, pods int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.budgets[budget] = pods
}
