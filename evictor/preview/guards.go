package preview

import "github.com/tollgate-dev/tollgate/tracker"

// guards says which pods a PodDisruptionBudget is about. It remembers what it has
// found for one forecast: the replicas of a workload have the same labels.
type guards struct {
	tracker *tracker.Tracker
	budgets map[string][]tracker.Budget
	known   map[replica]bool
}

// replica is what the pods of one workload have in common.
type replica struct {
	namespace string
	origin    *tracker.Origin
}

func newGuards(t *tracker.Tracker) *guards {
	return &guards{tracker: t, budgets: map[string][]tracker.Budget{}, known: map[replica]bool{}}
}

func (g *guards) guard(pod *tracker.Pod) bool {
	of := replica{namespace: pod.Namespace, origin: pod.Origin}
	guarded, ok := g.known[of]
	if !ok {
		guarded = g.find(pod)
		g.known[of] = guarded
	}
	return guarded
}

func (g *guards) find(pod *tracker.Pod) bool {
	budgets, ok := g.budgets[pod.Namespace]
	if !ok {
		budgets = g.tracker.Budgets(pod.Namespace)
		g.budgets[pod.Namespace] = budgets
	}
	for i := range budgets {
		if budgets[i].Guards(pod) {
			return true
		}
	}
	return false
}
