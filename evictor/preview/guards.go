package preview

import (
	"slices"

	"github.com/tollgate-dev/tollgate/tracker"
)

// guards returns a function that reports whether a PodDisruptionBudget selects a pod, none
// while the budgets are not known. The function caches its results for one forecast: the
// replicas of a workload have the same labels.
func guards(t *tracker.Tracker, known bool) func(pod *tracker.Pod) bool {
	type replicas struct {
		namespace string
		origin    *tracker.Origin
	}
	guarded := map[replicas]bool{}
	return func(pod *tracker.Pod) bool {
		of := replicas{pod.Namespace, pod.Origin}
		if _, ok := guarded[of]; !ok {
			guarded[of] = known && slices.ContainsFunc(t.Budgets(pod.Namespace), func(b tracker.Budget) bool { return b.Guards(pod) })
		}
		return guarded[of]
	}
}
