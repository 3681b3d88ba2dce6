package evictor

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/evictor/controller"
)

// steppedClock is a clock that is set now and then. It sleeps by the machine's.
type steppedClock struct {
	clock.RealClock

	ahead atomic.Int64
}

func (s *steppedClock) Now() time.Time { return s.RealClock.Now().Add(time.Duration(s.ahead.Load())) }

func (s *steppedClock) step(by time.Duration) { s.ahead.Add(int64(by)) }

func TestH04(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{5 * time.Minute, -5 * time.Minute} {
		t.Run("H04 deadlines are told by the clock of the API server, which differs by "+by.String(), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				server := &steppedClock{}
				server.step(by)
				w.options.Clock = server
				gpu := noExecute("gpu")
				gpu.TimeAdded = new(metav1.NewTime(time.Now().Add(by)))
				w.setNode("n", gpu)
				pod := newPod("a", "n", tolerationFor("gpu", 60))
				pod.Status.Conditions[0].LastTransitionTime = *gpu.TimeAdded
				w.setPod(pod)
				w.start()
				w.pass(seconds(60))
				w.stays(podA)
				w.pass(seconds(1))
				w.leaves(podA)
			})
		})
	}
}

func TestH05TheClockOfTheServerIsSet(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world, *steppedClock){
		"H05 what waits after a failure does not wait longer when it is set back":     setBackDuringBackoff,
		"H05 what waits for the lease does not wait longer when it is set back":       setBackDuringLeasePause,
		"H05 a stamp that failed does not wait longer when it is set back":            setBackDuringStamp,
		"H05 a deadline is found again soon after it was set back and forth":          setBackAndForth,
		"H05 a deadline that comes nearer because it was set forward is found soon":   setForward,
		"H05 what was read of a node is as fresh as before when it is set either way": setEitherWayAfterRead,
		"H05 summaries are written as often as before when it is set back":            setBackBetweenSummaries,
		"H05 the API server's recovery wakes what waits also when it is set back":     setBackBeforeRecovery,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				server := &steppedClock{}
				w.options.Clock = server
				test(w, server)
			})
		})
	}
}

// old returns a taint that any deadline of is long past, whatever a test does to
// clocks.
func old(key string) corev1.Taint {
	taint := noExecute(key)
	taint.TimeAdded = new(metav1.NewTime(time.Now().Add(-24 * time.Hour)))
	return taint
}

// resident returns a pod that has been on its node for as long.
func resident(name, node string, tolerations ...corev1.Toleration) *corev1.Pod {
	pod := newPod(name, node, tolerations...)
	pod.Status.Conditions[0].LastTransitionTime = *old("").TimeAdded
	return pod
}

func setBackDuringBackoff(w *world, server *steppedClock) {
	w.setNode("n", old("gpu"))
	w.setPod(resident("a", "n"))
	w.api.setFaults(every(is("delete pods"), errDenied), nil)
	w.start()
	w.pass(5 * time.Minute)
	server.step(-time.Hour)
	w.api.setFaults(nil, nil)
	w.pass(controller.RetryMax)
	w.leaves(podA)
}

func setBackDuringStamp(w *world, server *steppedClock) {
	bare := noExecute("gpu")
	bare.TimeAdded = nil
	w.api.setFaults(every(is("patch nodes"), errDenied), nil)
	w.start()
	w.setNode("n", bare)
	w.pass(5 * time.Minute)
	server.step(-time.Hour)
	w.api.setFaults(nil, nil)
	w.pass(controller.RetryMax)
	require.NotNil(w.t, w.api.node("n").Spec.Taints[0].TimeAdded)
}

func setBackDuringLeasePause(w *world, server *steppedClock) {
	var leads atomic.Bool
	w.options.Leads = leads.Load
	w.setNode("n", old("gpu"))
	w.setPod(resident("a", "n"))
	w.start()
	server.step(-time.Hour)
	leads.Store(true)
	w.pass(time.Second)
	w.leaves(podA)
}

func setBackAndForth(w *world, server *steppedClock) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n", tolerationFor("gpu", 600)))
	w.start()
	server.step(-time.Hour)
	w.pass(10 * time.Minute)
	w.stays(podA)
	server.step(time.Hour)
	w.pass(longestSleep)
	w.leaves(podA)
}

func setForward(w *world, server *steppedClock) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n", tolerationFor("gpu", 1800)))
	w.start()
	w.pass(seconds(10))
	w.stays(podA)
	server.step(time.Hour)
	w.pass(longestSleep)
	w.leaves(podA)
}

func setEitherWayAfterRead(w *world, server *steppedClock) {
	w.setNode("n", old("gpu"))
	w.start()
	for i, by := range []time.Duration{0, time.Hour, -2 * time.Hour} {
		server.step(by)
		name := string(rune('a' + i))
		w.setPod(resident(name, "n"))
		w.leaves("default/" + name)
	}
	require.Equal(w.t, 1, matches(w.api.took(), "get nodes n"))
}

func setBackBetweenSummaries(w *world, server *steppedClock) {
	w.setNode("n", old("gpu"))
	w.start()
	w.setPod(resident("a", "n"))
	w.pass(announceTick)
	require.Equal(w.t, 1, matches(w.recorder.took(), "Node n"))
	server.step(-time.Hour)
	w.setPod(resident("b", "n"))
	w.pass(summaryPause)
	require.Equal(w.t, 1, matches(w.recorder.took(), "Node n"))
}

func setBackBeforeRecovery(w *world, server *steppedClock) {
	w.setNode("n", old("gpu"))
	w.start()
	w.setPod(resident("first", "n"))
	w.leaves("default/first")
	w.api.setFaults(every(is(""), errDown), nil)
	w.setPod(resident("a", "n"))
	w.pass(5*time.Minute + seconds(3))
	w.stays(podA)
	server.step(-time.Hour)
	w.api.setFaults(nil, nil)
	w.setPod(resident("next", "n"))
	w.leaves("default/next")
	w.leaves(podA)
}

func TestH05WithoutTheLeaseNothingIsDone(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var leads atomic.Bool
		w.options.Leads = leads.Load
		w.setNode("n", corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoExecute})
		w.setPod(newPod("a", "n"))
		w.start()
		w.pass(30 * time.Minute)
		w.stays(podA)
		require.Empty(w.t, w.api.took(), "neither a pod nor a taint is written to")
		leads.Store(true)
		w.pass(seconds(2))
		w.leaves(podA)
	})
}
