package evictor

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// markedPod returns a pod with the condition that an evictor sets.
func markedPod(reason string, at time.Time) *tracker.Pod {
	return &tracker.Pod{Disruption: &corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(at.Truncate(time.Second)),
	}}
}

const taintManager = "DeletionByTaintManager"

// leading returns a watch in mode Replace whose term began at noon.
func leading() *modeCheck {
	w := &modeCheck{mode: ModeReplace}
	w.Leads(noon)
	return w
}

// fitOf returns what a check finds at a time.
func fitOf(w *modeCheck, at time.Time) ModeFinding {
	found, _ := w.Changed(at)
	return found
}

// deleted has somebody else mark and delete a pod.
func deleted(w *modeCheck, at time.Time) { w.SawDeletion(at, markedPod(taintManager, at), false) }

func TestJ10AnotherEvictorIsFound(t *testing.T) {
	t.Parallel()

	t.Run("by three pods within ten minutes", func(t *testing.T) {
		t.Parallel()
		w := leading()
		for i := range 3 {
			require.Equal(t, Fits, fitOf(w, after(time.Hour)), i)
			deleted(w, after(time.Hour))
		}
		require.Equal(t, BuiltInActive, fitOf(w, after(time.Hour)))
	})

	t.Run("that evicts because of devices", func(t *testing.T) {
		t.Parallel()
		w := leading()
		for range 3 {
			w.SawDeletion(after(time.Hour), markedPod("DeletionByDeviceTaintManager", after(time.Hour)), false)
		}
		require.Equal(t, BuiltInActive, fitOf(w, after(time.Hour)))
	})

	for name, saw := range map[string]func(w *modeCheck, at time.Time){
		"three in half an hour are none": func(w *modeCheck, at time.Time) {
			for i := range 3 {
				deleted(w, at.Add(time.Duration(i)*6*time.Minute))
			}
		},
		"our own are none": func(w *modeCheck, at time.Time) {
			for range 9 {
				w.SawDeletion(at, markedPod(taintManager, at), true)
			}
		},
		"a pod that a user has deleted has no mark": func(w *modeCheck, at time.Time) {
			for range 9 {
				w.SawDeletion(at, &tracker.Pod{}, false)
			}
		},
		"the scheduler, the Eviction API and the kubelet give other reasons": func(w *modeCheck, at time.Time) {
			for _, reason := range []string{"PreemptionByScheduler", "EvictionByEvictionAPI", "TerminationByKubelet"} {
				w.SawDeletion(at, markedPod(reason, at), false)
			}
		},
		"a condition that is False is no mark": func(w *modeCheck, at time.Time) {
			for range 9 {
				pod := markedPod(taintManager, at)
				pod.Disruption.Status = corev1.ConditionFalse
				w.SawDeletion(at, pod, false)
			}
		},
		"what an earlier leader has marked before": func(w *modeCheck, at time.Time) {
			for range 9 {
				w.SawDeletion(at, markedPod(taintManager, after(-time.Second)), false)
			}
		},
		"what it marks while it loses the lease": func(w *modeCheck, at time.Time) {
			for range 9 {
				w.SawDeletion(at, markedPod(taintManager, after(handover)), false)
			}
		},
		"what was seen in an earlier term": func(w *modeCheck, at time.Time) {
			deleted(w, at)
			deleted(w, at)
			w.Leads(at)
			deleted(w, at.Add(time.Minute))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := leading()
			saw(w, after(time.Hour))
			require.Equal(t, Fits, fitOf(w, after(time.Hour)))
			require.Equal(t, Fits, fitOf(w, after(2*time.Hour)))
		})
	}

	t.Run("not before a term has begun, and not in other modes", func(t *testing.T) {
		t.Parallel()
		for _, w := range []*modeCheck{{mode: ModeReplace}, {mode: ModeWindow}, {mode: ModeObserve}} {
			if w.mode != ModeReplace {
				w.Leads(noon)
			}
			for range 9 {
				deleted(w, after(time.Hour))
			}
			require.Equal(t, Fits, fitOf(w, after(time.Hour)), w.mode)
		}
	})
}

func TestJ10AnotherEvictorIsGone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		own  int
		when time.Duration
		want ModeFinding
	}{
		"not while nobody has to leave":                {0, 59 * time.Minute, BuiltInActive},
		"when nothing was seen for an hour":            {0, time.Hour, Fits},
		"not before ten minutes":                       {100, 9 * time.Minute, BuiltInActive},
		"when ten pods left undisturbed since":         {10, 10 * time.Minute, Fits},
		"not when fewer did":                           {9, 10 * time.Minute, BuiltInActive},
		"an hour is enough also when some left by us":  {9, time.Hour, Fits},
		"and stays so, with no more pods to tell from": {10, 30 * time.Minute, Fits},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := leading()
			for range 20 {
				w.SawEviction()
			}
			for range 5 {
				deleted(w, after(time.Hour))
			}
			for range tt.own {
				w.SawEviction()
			}
			require.Equal(t, tt.want, fitOf(w, after(time.Hour+tt.when)))
		})
	}

	t.Run("and can be found again", func(t *testing.T) {
		t.Parallel()
		w := leading()
		for _, at := range []time.Duration{time.Hour, 4 * time.Hour} {
			require.Equal(t, Fits, fitOf(w, after(at)))
			deleted(w, after(at))
			deleted(w, after(at))
			require.Equal(t, Fits, fitOf(w, after(at)))
			deleted(w, after(at))
			require.Equal(t, BuiltInActive, fitOf(w, after(at)))
		}
	})
}

func TestJ10NobodyCarriesOutTheEnd(t *testing.T) {
	t.Parallel()
	for mode, found := range map[Mode]ModeFinding{ModeWindow: NobodyEnforces, ModeObserve: NobodyEvicts, ModeReplace: Fits} {
		t.Run("in mode "+string(mode), func(t *testing.T) {
			t.Parallel()
			w := &modeCheck{mode: mode}
			w.Leads(noon)
			count := func(at time.Duration, pods int) ModeFinding {
				w.SawOverdue(after(at), pods)
				return fitOf(w, after(at))
			}
			require.Equal(t, Fits, count(0, 1))
			require.Equal(t, Fits, count(30*time.Second, 1))
			require.Equal(t, found, count(time.Minute, 7), "it lasts")
			require.Equal(t, found, count(90*time.Second, 0))
			require.Equal(t, found, count(2*time.Minute, 0))
			require.Equal(t, Fits, count(150*time.Second, 0), "and is over")
			require.Equal(t, Fits, count(3*time.Minute, 1))
			require.Equal(t, Fits, count(210*time.Second, 0))
			require.Equal(t, Fits, count(4*time.Minute, 1), "now and then is nothing")
			require.Equal(t, Fits, count(-time.Hour, 1))
			require.Equal(t, found, count(-time.Hour+time.Minute, 1), "H05 a clock that is set back does not hide it")
			w.Leads(noon)
			require.Equal(t, Fits, fitOf(w, noon))
		})
	}
	require.Equal(t, []time.Duration{0, time.Minute, 5 * time.Minute}, []time.Duration{modePatience[ModeReplace], modePatience[ModeWindow], modePatience[ModeObserve]})
}

func TestAFindingIsToldOnce(t *testing.T) {
	t.Parallel()
	w := leading()
	changed := func(at time.Duration) (ModeFinding, bool) { return w.Changed(after(at)) }
	told := func(want ModeFinding, news bool) func(ModeFinding, bool) {
		return func(got ModeFinding, changed bool) {
			t.Helper()
			require.Equal(t, want, got)
			require.Equal(t, news, changed)
		}
	}
	told(Fits, false)(changed(time.Hour))
	for range 3 {
		deleted(w, after(time.Hour))
	}
	told(BuiltInActive, true)(changed(time.Hour))
	told(BuiltInActive, false)(changed(time.Hour))
	told(Fits, true)(changed(2 * time.Hour))
	told(Fits, false)(changed(2 * time.Hour))
}

func TestFindingsSayWhatToDo(t *testing.T) {
	t.Parallel()
	for _, finding := range append([]ModeFinding{Fits}, ModeFindings...) {
		require.NotEmpty(t, finding.String())
		require.Contains(t, finding.Message(), "eviction.mode")
	}
	require.Equal(t, "Fits", Fits.String())
	require.NotContains(t, ModeFindings, Fits)
	require.Contains(t, BuiltInActive.Message(), "-taint-eviction-controller,-device-taint-eviction-controller")
}

func TestModeCheckWatchIsSafeForManyWorkers(t *testing.T) {
	t.Parallel()
	w := leading()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 100 {
				at := after(time.Hour + time.Duration(i)*time.Second)
				deleted(w, at)
				w.SawEviction()
				w.SawOverdue(at, i)
				fitOf(w, at)
				w.Changed(at)
			}
		})
	}
	wg.Wait()
	require.Equal(t, BuiltInActive, fitOf(w, after(time.Hour+100*time.Second)))
}
