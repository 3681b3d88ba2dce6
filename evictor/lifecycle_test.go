package evictor

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
)

func TestNew(t *testing.T) {
	t.Parallel()
	whole := func() Options {
		return Options{
			Source:   Source{Tracker: tracker.New(), Synced: func() bool { return true }},
			Requests: Requests{Client: fake.NewClientset()}, Events: Events{Recorder: &fakeRecorder{}},
			Clocks: Clocks{Clock: clock.RealClock{}}, Metrics: NewMetrics(prometheus.NewPedanticRegistry()),
		}
	}

	t.Run("it needs all that it has no default for", func(t *testing.T) {
		t.Parallel()
		for name, drop := range map[string]func(*Options){
			"tracker":  func(o *Options) { o.Tracker = nil },
			"synced":   func(o *Options) { o.Synced = nil },
			"client":   func(o *Options) { o.Client = nil },
			"recorder": func(o *Options) { o.Recorder = nil },
			"clock":    func(o *Options) { o.Clock = nil },
			"metrics":  func(o *Options) { o.Metrics = nil },
		} {
			options := whole()
			drop(&options)
			_, err := New(options)
			require.ErrorContains(t, err, name)
		}
	})

	t.Run("what is set is not replaced by a default", func(t *testing.T) {
		t.Parallel()
		set := withDefaults(Options{
			Requests: Requests{Workers: 1, MaxAge: 2}, Lease: Lease{AttemptTimeout: 3}, Decisions: Decisions{Mode: ModeObserve},
		})
		require.Equal(t, []any{1, time.Duration(2), time.Duration(3), ModeObserve}, []any{set.Workers, set.MaxAge, set.AttemptTimeout, set.Mode})
		unset := withDefaults(Options{})
		require.Equal(t, []any{DefaultWorkers, DefaultMaxAge, DefaultAttemptTimeout, ModeReplace},
			[]any{unset.Workers, unset.MaxAge, unset.AttemptTimeout, unset.Mode})
	})

	t.Run("DE-52 64 workers for each queue, unless more or fewer are asked for", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, 64, withDefaults(Options{}).Workers)
	})

	t.Run("without a recorder of its own, the events about devices go where those about nodes go", func(t *testing.T) {
		t.Parallel()
		nodes, devices := &fakeRecorder{}, &fakeRecorder{}
		require.Same(t, nodes, withDefaults(Options{Events: Events{Recorder: nodes}}).DeviceRecorder)
		require.Same(t, devices, withDefaults(Options{Events: Events{Recorder: nodes, DeviceRecorder: devices}}).DeviceRecorder)
	})

	t.Run("without a clock of its own, the machine's is the API server's", func(t *testing.T) {
		t.Parallel()
		server, local := &steppedClock{}, &steppedClock{}
		require.Same(t, server, withDefaults(Options{Clocks: Clocks{Clock: server}}).Local)
		require.Same(t, local, withDefaults(Options{Clocks: Clocks{Clock: server, Local: local}}).Local)
	})

	t.Run("NE-30 DE-55 only the leader evicts, and one that does not run does nothing", func(t *testing.T) {
		t.Parallel()
		options := whole()
		e, err := New(options)
		require.NoError(t, err)
		options.Tracker.SetNode(tracker.Node{Name: "n"}, noon)
		e.NodeChanged("n")
		e.PodsChanged([]tracker.Key{{Name: "a"}})
		require.Empty(t, options.Client.(*fake.Clientset).Actions())
	})
}

func TestWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world){
		"H08 many deadlines at the same second do not keep another waiting": func(w *world) {
			const many = 2000
			for i := range many {
				w.setPod(newPod(podName(i), "n", tolerationFor("gpu", 60)))
			}
			w.setPod(newPod("a", "n", tolerationFor("gpu", 59)))
			w.setNode("n", noExecute("gpu"))
			w.pass(seconds(60))
			w.leaves(podA)
			require.Zero(w.t, w.gone(many))
			w.pass(seconds(2))
			require.Equal(w.t, many, w.gone(many))
		},
		"NE-26 a pod leaves once, at the earliest of its times": func(w *world) {
			w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
			w.setNode("n", noExecute("gpu"))
			w.update(podA, func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{tolerationFor("gpu", 10)} })
			w.pass(seconds(11))
			w.leaves(podA)
			w.pass(time.Hour)
			require.Equal(w.t, 1, matches(w.api.took(), "delete pods"))
		},
		"a pod that fails waits longer each time up to a bound, alone": func(w *world) {
			w.api.setFaults(every(is("delete pods default/a"), errDenied), nil)
			w.setPod(newPod("a", "n"))
			w.setNode("n", noExecute("gpu"))
			w.pass(10 * time.Minute)
			w.stays(podA)
			require.InDelta(w.t, 30, matches(w.api.took(), "delete pods default/a"), 5)
			w.api.setFaults(first(1, is("delete pods default/b"), errDenied), nil)
			w.setPod(newPod("b", "n"))
			w.pass(retryBase)
			w.leaves(podB)
			w.pass(controller.RetryMax)
			w.leaves(podA)
		},
		"I05 a pod that conflicts again and again does not wait longer and longer": func(w *world) {
			w.api.setFaults(every(is("delete pods default/a"), errConflict), nil)
			w.setPod(newPod("a", "n"))
			w.setNode("n", noExecute("gpu"))
			w.pass(10 * time.Minute)
			w.stays(podA)
			w.api.setFaults(nil, nil)
			w.pass(conflictMax)
			w.leaves(podA)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.start()
				test(w)
			})
		})
	}
}

func TestG04(t *testing.T) {
	t.Parallel()
	t.Run("G04 a taint that flaps ten times a second fills no queue and evicts nobody who tolerates it for a second", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			for i := range 20 {
				w.setPod(newPod(fmt.Sprintf("p%d", i), "n", tolerationFor("gpu", 1)))
			}
			w.start()
			for range 100 {
				w.setNode("n", noExecute("gpu"))
				w.pass(100 * time.Millisecond)
				w.setNode("n")
				w.pass(100 * time.Millisecond)
			}
			require.Empty(w.t, w.api.took())
			require.Zero(w.t, w.value("tollgate_evictions_pending"))
			require.Positive(w.t, w.value("tollgate_eviction_events_dropped_total"))
		})
	})
}

func TestTheLogSaysWhatTheEvictorWaitsFor(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var lines []string
		w.options.Synced = func() bool { return false }
		w.options.Missing = func() []string { return []string{"policies"} }
		w.log = funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		w.start()
		w.pass(95 * time.Second)
		w.kill()
		require.Len(t, lines, 3)
		require.Contains(t, lines[0], `"missing"=["policies"]`)
	})
}
