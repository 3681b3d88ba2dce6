package preview

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// resolution is how much later than its toleration says a pod may be evicted: the API
// stores times in whole seconds.
const resolution = time.Second

// Pod is a pod that becomes due, or due sooner.
type Pod struct {
	tracker.Key
	// At is when it has to leave, and Was when it had to before, zero for never.
	At, Was time.Time
	// Wait is for how long it is tolerated from now on, in whole seconds as the
	// toleration has them; zero for a pod that has to leave now.
	Wait time.Duration
	// Guarded is true when a PodDisruptionBudget selects the pod, and Ownerless when no
	// controller would create another one in its place.
	Guarded, Ownerless bool
	// Because are the reasons, the most urgent first, except taints that an EvictionPolicy
	// protects the pod from.
	Because []decide.Reason
	// Paused is true when the EvictionPolicy that governs its eviction is paused.
	Paused bool
}

// Forecast is the effect of a write on pods. The zero Forecast is a write that evicts
// nothing.
type Forecast struct {
	// Pods are those that become due, or due sooner, by namespace and name.
	Pods []Pod
	// Namespaces is the number of their namespaces.
	Namespaces int
	// Now is how many have to leave at once, and Within how many later, the soonest
	// first. No pod counts twice.
	Now    int
	Within []Within
	// Sooner is how many had to leave before, but later.
	Sooner int
	// Guarded and Ownerless count such pods.
	Guarded, Ownerless int
	// Paused counts those among the pods that a paused EvictionPolicy holds, by its name.
	Paused map[string]int
	// Protected counts pods that are not among them, because an EvictionPolicy protects
	// them, by its name.
	Protected map[string]int
	// Tripping describes the breakers that hold some of the pods, even if no other pod leaves.
	Tripping []string
	// BudgetsUnknown is true while PodDisruptionBudgets are not known.
	BudgetsUnknown bool
}

// Within is how many pods have to leave within a time, and not within a shorter one
// of the same forecast.
type Within struct {
	Time time.Duration
	Pods int
}

// Forecast returns the effect of changes on pods.
func (v *View) Forecast(now time.Time, changes []tracker.Change) Forecast {
	known, treatments, live := v.BudgetsKnown(), v.treatments(), v.Tracker.Live()
	guarded := guards(v.Tracker, known)
	f := Forecast{Pods: make([]Pod, 0, len(changes)), Paused: map[string]int{}, Protected: map[string]int{}, BudgetsUnknown: !known}
	waits := map[time.Duration]int{}
	namespaces := sets.Set[string]{}
	load := load{}
	for i := range changes {
		pod, becomes, ok := treatments.foretell(now, &changes[i])
		if !ok {
			count(f.Protected, becomes.protected)
			continue
		}
		after := &changes[i].After.Pod
		pod.Guarded = guarded(after)
		pod.Ownerless = after.Origin == nil || after.Origin.OwnerKind == ""
		f.Pods = append(f.Pods, pod)
		namespaces.Insert(pod.Namespace)
		waits[pod.Wait]++
		f.Sooner += one(!pod.Was.IsZero())
		f.Guarded += one(pod.Guarded)
		f.Ownerless += one(pod.Ownerless)
		count(f.Paused, becomes.paused)
		for _, policy := range becomes.breakers {
			load[policy] = append(load[policy], decide.Later(pod.At, now))
		}
	}
	byKey := func(a, b Pod) int { return tracker.CompareKeys(a.Key, b.Key) }
	if !slices.IsSortedFunc(f.Pods, byKey) {
		slices.SortFunc(f.Pods, byKey) // changes of several nodes
	}
	f.Namespaces = len(namespaces)
	f.Now = waits[0]
	delete(waits, 0)
	f.Within = grouped(waits)
	f.Tripping = load.tripping(live)
	return f
}

// count counts a pod under the name of a policy, nil for none.
func count(pods map[string]int, policy *eviction.Policy) {
	if policy != nil {
		pods[policy.Name]++
	}
}

// foretell returns a pod that becomes due, or due sooner; false for any other pod. A
// deadline that is over cannot be moved: the pod is due. The prospect of a pod that would
// become due, or due sooner, without the policy that protects it names that policy.
func (t *treatments) foretell(now time.Time, change *tracker.Change) (Pod, prospect, bool) {
	after := t.rules.Decide(now, change.After)
	if after.Verdict != decide.EvictAt {
		return Pod{}, prospect{}, false
	}
	before := t.rules.Decide(now, change.Before)
	becomes := t.settle(now, &change.After.Pod, after)
	if becomes.Verdict != decide.EvictAt {
		if !hastens(&before, &after, now) {
			becomes.protected = nil
		}
		return Pod{}, becomes, false
	}
	was := t.settle(now, &change.Before.Pod, before)
	left := becomes.Wait
	if becomes.Because[0].Tolerated {
		left -= resolution
	}
	return Pod{
		Key: change.After.Pod.Key, At: becomes.At, Was: was.At, Because: becomes.Because, Paused: becomes.paused != nil,
		Wait: time.Duration(math.Ceil(max(left, 0).Seconds())) * time.Second,
	}, becomes, hastens(&was.Decision, &becomes.Decision, now)
}

// hastens reports whether a pod that has to leave did not have to before, or later.
func hastens(before, after *decide.Decision, now time.Time) bool {
	return before.Verdict != decide.EvictAt || sooner(after.At, before.At, now)
}

// sooner reports whether a deadline comes before another one that is not over at now.
func sooner(at, was, now time.Time) bool {
	return was.After(now) && at.Before(was)
}

// mostGroups is how many different times a forecast names. Pods with the default
// tolerations all have the same; pods with others may have a time each.
const mostGroups = 3

// bounds are the times by which a forecast groups many different times.
var bounds = []time.Duration{time.Minute, 5 * time.Minute, time.Hour, 24 * time.Hour, math.MaxInt64}

// grouped returns how many pods have to leave within which time.
func grouped(waits map[time.Duration]int) []Within {
	var groups []Within
	for wait, pods := range waits {
		groups = append(groups, Within{Time: wait, Pods: pods})
	}
	slices.SortFunc(groups, func(a, b Within) int { return cmp.Compare(a.Time, b.Time) })
	if len(groups) <= mostGroups {
		return groups
	}
	var merged []Within
	bound := -1
	for _, group := range groups {
		of := slices.IndexFunc(bounds, func(b time.Duration) bool { return group.Time <= b })
		if of > bound {
			bound = of
			merged = append(merged, Within{})
		}
		last := &merged[len(merged)-1]
		last.Time, last.Pods = group.Time, last.Pods+group.Pods
	}
	return merged
}

func one(counts bool) int {
	if counts {
		return 1
	}
	return 0
}

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
