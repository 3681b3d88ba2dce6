package evictor

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

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
		set := Options{Requests: Requests{Workers: 1, MaxAge: 2}, Lease: Lease{AttemptTimeout: 3}, Events: Events{EventRate: 4, EventBurst: 5}}
		require.Equal(t, set, withoutFuncs(set))
		require.Equal(t, Options{
			Requests: Requests{Workers: DefaultWorkers, MaxAge: DefaultMaxAge}, Lease: Lease{AttemptTimeout: DefaultAttemptTimeout},
			Events: Events{EventRate: DefaultEventRate, EventBurst: DefaultEventBurst},
		}, withoutFuncs(Options{}))
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
		require.True(t, e.NeedLeaderElection())
		options.Tracker.SetNode(tracker.Node{Name: "n"}, noon)
		e.NodeChanged("n")
		e.PodsChanged([]tracker.Key{{Name: "a"}})
		require.Empty(t, options.Client.(*fake.Clientset).Actions())
	})
}

// withoutFuncs returns options with the defaults but for the functions, which
// cannot be compared.
func withoutFuncs(o Options) Options {
	o = withDefaults(o)
	o.Leads, o.RulesChanged, o.PatchesChanged = nil, nil, nil
	return o
}

func TestQueue(t *testing.T) {
	t.Parallel()

	t.Run("H08 ten thousand deadlines at the same second do not keep another waiting", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			const many = 10_000
			q := newQueue[int]("", clock.RealClock{})
			for i := range many {
				q.sleep(i, time.Minute)
			}
			q.sleep(many, seconds(59))
			synctest.Wait()
			time.Sleep(seconds(59))
			item, _ := q.Get()
			require.Equal(t, many, item)
			require.Zero(t, q.Len())
			time.Sleep(seconds(1))
			synctest.Wait()
			require.Equal(t, many, q.Len())
			q.ShutDown()
		})
	})

	t.Run("NE-26 an item is queued once, at the earliest of its times", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			q := newQueue[string]("", clock.RealClock{})
			q.sleep("a", seconds(60))
			q.sleep("a", seconds(10))
			q.sleep("a", seconds(30))
			q.sleep("never", 0)
			time.Sleep(seconds(10))
			synctest.Wait()
			require.Equal(t, 1, q.Len())
			item, _ := q.Get()
			require.Equal(t, "a", item)
			q.Done(item)
			time.Sleep(time.Hour)
			synctest.Wait()
			require.Zero(t, q.Len())
			q.ShutDown()
		})
	})

	t.Run("a failed item waits longer each time up to a bound, alone", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			q := newQueue[string]("", clock.RealClock{})
			for range 100 {
				q.retry("a", errDown)
				time.Sleep(retryMax)
				synctest.Wait()
				item, _ := q.Get()
				q.Done(item)
			}
			q.retry("b", errDown)
			time.Sleep(retryBase)
			synctest.Wait()
			require.Equal(t, 1, q.Len())
			q.ShutDown()
		})
	})

	t.Run("I05 an item that conflicts again and again does not wait longer and longer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			q := newQueue[string]("", clock.RealClock{})
			for range 100 {
				q.retry("a", fmt.Errorf("delete pod: %w", errConflict))
				time.Sleep(conflictMax)
				synctest.Wait()
				item, _ := q.Get()
				require.Equal(t, "a", item)
				q.Done(item)
			}
			q.ShutDown()
		})
	})

	t.Run("an item that went well waits little when it fails again", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			q := newQueue[string]("", clock.RealClock{})
			for range 100 {
				q.backoff.When("a")
			}
			q.sleep("a", 0)
			q.retry("a", errDown)
			time.Sleep(retryBase)
			synctest.Wait()
			require.Equal(t, 1, q.Len())
			q.ShutDown()
		})
	})

	t.Run("a far deadline is looked at in between", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			q := newQueue[string]("", clock.RealClock{})
			q.sleep("a", 290*365*24*time.Hour)
			time.Sleep(longestSleep)
			synctest.Wait()
			require.Equal(t, 1, q.Len())
			q.ShutDown()
		})
	})
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
				require.Zero(w.t, w.evictor.queues.plain.Len())
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
