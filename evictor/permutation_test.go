package evictor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/evictor/act"
)

// TestEveryOrder has the events of a scenario come in every order in which watches
// can bring them: those of one object one after the other, all others as they
// like. However they come, the end is the same (I08, DE-53).
func TestEveryOrder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		play func(*world)
		want []string
	}{
		"a rule, a slice and a node taint a pod": {orderAllTaint, []string{
			"default/a gone after 4s, DeletionByDeviceTaintManager", "soon: 1", "late: 1",
		}},
		"the slice and the node outlive the rule": {orderRuleDeleted, []string{
			"default/a gone after 7s, DeletionByDeviceTaintManager",
		}},
		"a node that is due before the devices": {orderNodeFirst, []string{
			"default/a gone after 3s, DeletionByTaintManager", "late: 1",
		}},
		"a newer generation without the taint": {orderNewGeneration, []string{
			"default/a stays",
		}},
		"a newer generation that goes again": {orderGenerationGoes, []string{
			"default/a gone after 7s, DeletionByDeviceTaintManager",
		}},
		"a claim created anew for another pod": {orderClaimAnew, []string{
			"default/a stays", "default/b gone after 4s, DeletionByDeviceTaintManager", "soon: 1",
		}},
		"a claim that is reserved, then deallocated": {orderDeallocated, []string{
			"default/a stays",
		}},
		"a pod created anew under its name": {orderPodAnew, []string{
			"default/a gone after 4s, DeletionByDeviceTaintManager", "soon: 1",
		}},
		"a pod that gets its node and its claim one after the other": {orderPodGrows, []string{
			"default/a gone after 4s, DeletionByDeviceTaintManager", "soon: 1",
		}},
		"a rule created anew for another device": {orderRuleAnew, []string{
			"default/a stays", "default/b gone after 4s, DeletionByDeviceTaintManager", "again: 1",
		}},
		"two pods that share a claim, one of them over": {orderShared, []string{
			"default/a gone after 4s, DeletionByDeviceTaintManager", "default/b stays", "soon: 1",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			orders := 0
			for order := range permutations(recorded(t, test.play)) {
				orders++
				var got []string
				inWorld(t, func(w *world) { got = endOf(w, test.play, order) })
				require.Equal(t, test.want, got, "order %v", order)
			}
			require.Greater(t, orders, 20)
			t.Logf("%d orders", orders)
		})
	}
}

// recorded returns which object each event of a scenario is about.
func recorded(t *testing.T, play func(*world)) []string {
	t.Helper()
	var keys []string
	inWorld(t, func(w *world) {
		for _, c := range record(w, play) {
			keys = append(keys, c.key())
		}
	})
	return keys
}

// record plays a scenario of which nobody is told.
func record(w *world, play func(*world)) []change {
	w.options.Workers = 2
	w.start()
	w.evictor.effector = &quickEffector{api: w.api, began: time.Now(), left: map[string]string{}}
	w.api.setLag(true)
	play(w)
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	held := w.api.held
	w.api.held, w.api.lagging = nil, false
	return held
}

// endOf plays a scenario, has its events come in an order, and returns what has
// become of the world when every toleration is over.
func endOf(w *world, play func(*world), order []int) []string {
	events := record(w, play)
	for _, i := range order {
		w.api.deliver(events[i].old, events[i].obj)
		synctest.Wait()
	}
	w.pass(seconds(12))
	left := w.evictor.effector.(*quickEffector).left
	for _, key := range []string{podA, podB} {
		if pod := w.api.pod(key); pod != nil && pod.DeletionTimestamp == nil {
			left[key] = key + " stays"
		}
	}
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
	end := slices.Sorted(maps.Values(left))
	for _, rule := range []string{"soon", "late", "again"} {
		if count := w.evictor.EvictedBy(newRule(rule, "", resourcev1.DeviceTaint{}).UID); count > 0 {
			end = append(end, fmt.Sprintf("%s: %d", rule, count))
		}
	}
	return end
}

// quickEffector evicts without the client, which would take most of the time of
// thousands of worlds. One pod at a time leaves in these.
type quickEffector struct {
	api   *fakeAPI
	began time.Time
	left  map[string]string
}

func (q *quickEffector) Evict(_ context.Context, what act.Order) (act.Attempt, error) {
	pod, reason := what.Pod, builtIn[0]
	if what.Cause.OnDevice() {
		reason = builtIn[1]
	}
	now := q.api.pod(pod.String())
	switch {
	case now == nil || now.UID != pod.UID:
		return act.Attempt{Outcome: act.Gone}, nil
	case now.ResourceVersion != pod.ResourceVersion:
		return act.Attempt{}, errConflict
	}
	now.DeletionTimestamp = new(metav1.Now())
	q.api.store(now)
	q.left[pod.String()] = fmt.Sprintf("%s gone after %s, %s", pod.String(), time.Since(q.began).Round(time.Second), reason)
	return act.Attempt{Outcome: act.Evicted}, nil
}

// permutations yields every order of events in which those of one object stay in
// theirs.
func permutations(keys []string) func(yield func([]int) bool) {
	return func(yield func([]int) bool) { extend(keys, nil, yield) }
}

func extend(keys []string, order []int, yield func([]int) bool) bool {
	if len(order) == len(keys) {
		return yield(order)
	}
	begun := map[string]bool{}
	for i, key := range keys {
		if slices.Contains(order, i) || begun[key] {
			continue
		}
		begun[key] = true
		if !extend(keys, append(slices.Clone(order), i), yield) {
			return false
		}
	}
	return true
}

// The keys that the scenarios use are tolerated for this long: not long, since time
// passes in each of thousands of worlds.
var orderTolerations = several(tolerated("soon", 3), tolerated("slice", 6), tolerated("late", 9))

func orderAllTaint(w *world) {
	w.set(newClaim("c", "gpu-0", orderTolerations, "a"))
	w.setPod(using(newPod("a", "n", tolerationFor("disk", 5)), "c"))
	w.set(newRule("soon", "", deviceTaint("soon")))
	w.set(newRule("late", "gpu-0", deviceTaint("late")))
	w.set(newSlice("s", 1, "gpu-0", deviceTaint("slice")))
	w.setNode("n", noExecute("disk"))
}

func orderRuleDeleted(w *world) {
	rule := newRule("soon", "", deviceTaint("soon"))
	w.set(rule)
	w.set(newClaim("c", "gpu-0", orderTolerations, "a"))
	w.setPod(using(newPod("a", "n", tolerationFor("disk", 8)), "c"))
	w.drop(rule)
	w.set(newSlice("s", 1, "gpu-0", deviceTaint("slice")))
	w.setNode("n", noExecute("disk"))
}

func orderNodeFirst(w *world) {
	w.set(newClaim("c", "gpu-0", orderTolerations, "a"))
	w.setPod(using(newPod("a", "n", tolerationFor("disk", 2)), "c"))
	w.set(newRule("late", "", deviceTaint("late")))
	w.set(newSlice("s", 1, "gpu-0", deviceTaint("slice")))
	w.setNode("n", noExecute("disk"))
}

func orderNewGeneration(w *world) {
	w.set(newSlice("old", 1, "gpu-0", deviceTaint("slice")))
	w.set(newClaim("c", "gpu-0", orderTolerations, "a"))
	w.setPod(using(newPod("a", "n"), "c"))
	w.set(newSlice("new", 2, "gpu-0"))
	w.set(newRule("other", "gpu-1", deviceTaint("soon")))
}

func orderGenerationGoes(w *world) {
	w.set(newSlice("old", 1, "gpu-0", deviceTaint("slice")))
	w.set(newClaim("c", "gpu-0", orderTolerations, "a"))
	w.setPod(using(newPod("a", "n"), "c"))
	newer := newSlice("new", 2, "gpu-1", deviceTaint("soon"))
	w.set(newer)
	w.drop(newer)
}

func orderClaimAnew(w *world) {
	w.set(newRule("soon", "", deviceTaint("soon")))
	claim := newClaim("c", "gpu-0", orderTolerations, "a")
	w.set(claim)
	w.setPod(using(newPod("a", "n"), "c"))
	w.setPod(using(newPod("b", "n"), "c"))
	w.drop(claim)
	again := newClaim("c", "gpu-0", orderTolerations, "b")
	again.UID = "another"
	w.set(again)
}

func orderDeallocated(w *world) {
	w.set(newRule("soon", "", deviceTaint("soon")))
	claim := newClaim("c", "gpu-0", orderTolerations, "a")
	w.set(claim)
	w.setPod(using(newPod("a", "n"), "c"))
	claim.Status.Allocation, claim.Status.ReservedFor = nil, nil
	w.set(claim)
	w.set(newSlice("s", 1, "gpu-0", deviceTaint("slice")))
}

func orderPodAnew(w *world) {
	w.set(newRule("soon", "", deviceTaint("soon")))
	pod := using(newPod("a", "n"), "c")
	pod.UID = "before"
	w.setPod(pod)
	w.api.remove(podA)
	w.setPod(using(newPod("a", "m"), "c"))
	w.set(newClaim("c", "gpu-0", orderTolerations, "a"))
	w.setNode("n", noExecute("disk"))
}

func orderPodGrows(w *world) {
	w.set(newRule("soon", "", deviceTaint("soon")))
	pod := newPod("a", "")
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "mine", ResourceClaimTemplateName: new("template")}}
	w.setPod(pod)
	claim := newClaim("generated", "gpu-0", orderTolerations, "a")
	claim.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "a", UID: "a-uid", Controller: new(true)}}
	w.set(claim)
	w.update(podA, func(p *corev1.Pod) {
		p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "mine", ResourceClaimName: new("generated")}}
	})
	w.update(podA, func(p *corev1.Pod) { p.Spec.NodeName = "n" })
	w.set(newSlice("s", 1, "gpu-0", deviceTaint("slice")))
}

func orderRuleAnew(w *world) {
	rule := newRule("again", "gpu-0", deviceTaint("soon"))
	rule.UID = "before"
	w.set(rule)
	w.set(newClaim("c", "gpu-0", orderTolerations, "a"))
	w.set(newClaim("d", "gpu-1", orderTolerations, "b"))
	w.setPod(using(newPod("a", "n"), "c"))
	w.setPod(using(newPod("b", "n"), "d"))
	// Watches that were away report that as one change.
	w.set(newRule("again", "gpu-1", deviceTaint("soon")))
}

func orderShared(w *world) {
	w.set(newRule("soon", "", deviceTaint("soon")))
	w.set(newClaim("c", "gpu-0", orderTolerations, "a", "b"))
	w.setPod(using(newPod("a", "n"), "c"))
	pod := using(newPod("b", "n"), "c")
	w.setPod(pod)
	w.update(podB, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
}
