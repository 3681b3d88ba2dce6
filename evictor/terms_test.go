package evictor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/tracker"
)

// The tests of this file have one evictor lead, lose the lease, and lead again. The
// tracker hears of everything meanwhile.

func TestTerms(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world){
		"NE-30 a replica that does not lead any more has nothing pending, and tells the rules": termEnds,
		"G06 what is pending in the next term is what has to leave then":                       termAgain,
		"I04 what became of a deletion while another led is not put down to this replica":      termDeletionLost,
		"I05 a condition that was refused in an earlier term is tried again":                   termMarkRefused,
		"DE-68 DE-75 what was counted is kept, but for rules that went meanwhile":              termCounts,
		"H01 H02 odd times that were told of are not told of again, and those gone forgotten":  termOddTimes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, test)
		})
	}
}

func termEnds(w *world) {
	var (
		mutex sync.Mutex
		told  []string
	)
	w.options.RulesChanged = func(rules []string) {
		mutex.Lock()
		defer mutex.Unlock()
		told = append(told, rules...)
	}
	w.setNode("m", noExecute("disk"))
	w.setPod(newPod("plain", "m", tolerationFor("disk", 600)))
	w.set(newClaim("c", "gpu-0", several(tolerated("gpu", 600), tolerated("net", 601)), "a", "b"))
	w.setPod(using(newPod("a", "n"), "c"))
	w.setPod(using(newPod("b", "n"), "c"))
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.set(newRule("s", "", deviceTaint("net")))
	w.start()
	require.InDelta(w.t, 3, w.value("tollgate_evictions_pending"), 0)
	told = nil
	w.kill()
	require.Equal(w.t, []string{"r", "s"}, told, "each once")
	for _, source := range []string{"node", "devicetaintrule"} {
		require.Zero(w.t, w.value("tollgate_evictions_pending", "source="+source))
	}
	require.Zero(w.t, w.value("tollgate_evictions_total"))
	require.Empty(w.t, slices.Concat(w.recorder.took(), w.deviceRecorder.took()), "nothing is cancelled")
}

func termAgain(w *world) {
	w.setNode("n", noExecute("disk"))
	for _, name := range []string{"a", "b", "c"} {
		w.setPod(newPod(name, "n", tolerationFor("disk", 60)))
	}
	w.start()
	w.pass(seconds(30))
	w.kill()
	w.api.remove(podB)
	w.setPod(newPod("d", "m", tolerationFor("disk", 60)))
	w.update("default/c", tolerateForEver)
	w.lead()
	require.InDelta(w.t, 1, w.value("tollgate_evictions_pending"), 0)
	w.pass(seconds(30))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
	w.stays("default/c")
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
	require.InDelta(w.t, 1, w.value("tollgate_evictions_total"), 0)
}

func tolerateForEver(pod *corev1.Pod) { pod.Spec.Tolerations = []corev1.Toleration{forever("disk")} }

func termDeletionLost(w *world) {
	podWithDevice(w, nil)
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.api.setFaults(every(is("delete pods default/a"), errLost), nil)
	w.start()
	require.True(w.t, w.evictor.state.pending[tracker.PodOf(w.api.pod(podA)).Key].sent)
	w.kill()
	w.api.setFaults(nil, nil)
	w.api.remove(podA)
	w.lead()
	w.set(newClaim("d", "gpu-0", nil, "b"))
	w.setPod(using(newPod("b", "n"), "d"))
	w.pass(time.Hour)
	w.leaves(podB)
	require.InDelta(w.t, 1, w.value("device_taint_eviction_controller_pod_deletions_total"), 0)
	require.InDelta(w.t, 1, w.value("tollgate_evictions_total"), 0)
	require.Equal(w.t, 1, w.evictor.EvictedBy("r-rule-uid"))
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
}

func termMarkRefused(w *world) {
	w.setNode("n", noExecute("disk"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(func(req request) error {
		if is("patch pods/status")(req) || is("delete pods")(req) {
			return errDenied
		}
		return nil
	}, nil)
	w.start()
	w.pass(time.Minute)
	require.Positive(w.t, matches(w.api.took(), "delete pods"), "the condition was given up")
	w.kill()
	w.api.setFaults(nil, nil)
	w.lead()
	w.leaves(podA)
	require.Equal(w.t, "DeletionByTaintManager", tracker.PodOf(w.api.pod(podA)).Disruption.Reason)
}

func termCounts(w *world) {
	podWithDevice(w, several(tolerated("gpu", 0), tolerated("net", 0)))
	gone := newRule("gone", "", deviceTaint("net"))
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.set(gone)
	w.start()
	w.pass(seconds(1))
	require.Equal(w.t, 1, w.evictor.EvictedBy("gone-rule-uid"))
	w.kill()
	w.drop(gone)
	w.lead()
	require.Equal(w.t, 1, w.evictor.EvictedBy("r-rule-uid"))
	require.Zero(w.t, w.evictor.EvictedBy("gone-rule-uid"))
	require.Len(w.t, w.evictor.state.evicted, 1)
}

func termOddTimes(w *world) {
	ahead, rule := noExecute("disk"), newRule("r", "", deviceTaint("gpu"))
	ahead.TimeAdded = new(metav1.NewTime(time.Now().Add(time.Hour)))
	rule.Spec.Taint.TimeAdded = ahead.TimeAdded
	w.start()
	for _, name := range []string{"kept", "clean", "gone"} {
		w.setNode(name, ahead)
	}
	w.set(rule)
	require.Len(w.t, w.recorder.took(), 3)
	require.Len(w.t, w.deviceRecorder.took(), 1)
	w.kill()
	w.setNode("clean")
	w.api.remove("gone")
	w.drop(rule)
	w.lead()
	require.Empty(w.t, slices.Concat(w.recorder.took(), w.deviceRecorder.took()))
	require.Len(w.t, w.evictor.odd.reported, 1)
	w.setNode("clean", ahead)
	require.Len(w.t, w.recorder.took(), 1)
}

// TestCountedBeforeItShows has the tracker hear of an eviction from nobody but the
// evictor.
func TestCountedBeforeItShows(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		podWithDevice(w, tolerated("gpu", 60))
		w.set(newRule("r", "", deviceTaint("gpu")))
		key := tracker.PodOf(w.api.pod(podA)).Key
		pending := func() bool {
			situation, ok := w.tracker.Lookup(key)
			return ok && !situation.Pod.Terminating
		}
		var told, meanwhile []string
		w.options.RulesChanged = func([]string) {
			told = append(told, fmt.Sprintf("pending %t, evicted %d", pending(), w.evictor.EvictedBy("r-rule-uid")))
		}
		w.start()
		w.kill()
		w.evictor.state.exists = func(tracker.Source) bool {
			meanwhile = append(meanwhile, fmt.Sprintf("pending %t", pending()))
			return true
		}
		told = nil
		w.lead()
		w.api.setLag(true)
		w.pass(seconds(61))
		require.Equal(w.t, []string{"pending true"}, meanwhile)
		require.Equal(w.t, []string{"pending true, evicted 0", "pending false, evicted 1"}, told, "rules are told when both can be seen")
		w.evictor.PodsChanged([]tracker.Key{key})
		w.api.setLag(false)
		w.pass(time.Hour)
		require.Equal(w.t, 1, matches(w.api.took(), "delete pods"))
		require.Equal(w.t, 1, w.evictor.EvictedBy("r-rule-uid"))
	})
}

// saying is an effector that always says the same.
type saying struct {
	outcome act.Outcome
	asked   atomic.Int32
}

func (s *saying) Evict(context.Context, act.Order) (act.Attempt, error) {
	s.asked.Add(1)
	return act.Attempt{Outcome: s.outcome}, nil
}

// TestOutcomesAreLearned has an evictor be told what became of a pod before the
// watch says so.
func TestOutcomesAreLearned(t *testing.T) {
	t.Parallel()
	for _, outcome := range []act.Outcome{act.Evicted, act.Gone, act.Terminating} {
		t.Run("I08 a pod that is "+string(outcome)+" is not asked for again, whatever the watch says", func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.start()
				effector := &saying{outcome: outcome}
				w.evictor.effector = effector
				pod := newPod("a", "n")
				w.setPod(pod)
				if outcome == act.Gone {
					w.api.pods.clear()
					w.api.remove(podA)
				}
				w.setNode("n", noExecute("disk"))
				w.evictor.PodsChanged([]tracker.Key{tracker.PodOf(pod).Key})
				w.pass(time.Minute)
				require.EqualValues(w.t, 1, effector.asked.Load())
				require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "outcome="+string(outcome)), 0)
				require.Zero(w.t, w.value("tollgate_evictions_pending"))
			})
		})
	}
}
