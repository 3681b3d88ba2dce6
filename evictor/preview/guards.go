package preview

import (
	"slices"

	"github.com/tollgate-dev/tollgate/tracker"
)

// guards returns a function that reports whether a PodDisruptionBudget selects a pod. The
// function caches its results for one forecast: the replicas of a workload have the same
// labels.
func guards(t *tracker.Tracker) func(pod *tracker.Pod) bool {
	type replicas struct {
		namespace string
		origin    *tracker.Origin
	}
	budgets, known := map[string][]tracker.Budget{}, map[replicas]bool{}
	return func(pod *tracker.Pod) bool {
		of := replicas{pod.Namespace, pod.Origin}
		guarded, ok := known[of]
		if ok {
			return guarded
		}
		inNamespace, ok := budgets[pod.Namespace]
		if !ok {
			inNamespace = t.Budgets(pod.Namespace)
			budgets[pod.Namespace] = inNamespace
		}
		guarded = slices.ContainsFunc(inNamespace, func(b tracker.Budget) bool { return b.Guards(pod) })
		known[of] = guarded
		return guarded
	}
}
