package evictor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/breaker"
	"github.com/tollgate-dev/tollgate/tracker"
)

// errBrokenWebhook is the answer to a request that a webhook has to see which is not there.
var errBrokenWebhook = apierrors.NewInternalError(errors.New(`failed calling webhook "guard.example.com": connection refused`))

// errEtcd is an answer of an API server that is not well.
var errEtcd = apierrors.NewInternalError(errors.New("etcdserver: leader changed"))

// withBreaker has evictions bounded by a breaker of the policy, whose state is stored, and
// returns how many pods it has granted.
func withBreaker(w *world, policy v1alpha1.EvictionPolicy) (granted func() int) {
	w.t.Helper()
	w.setPolicy(policy)
	scheme := runtime.NewScheme()
	require.NoError(w.t, v1alpha1.AddToScheme(scheme))
	store := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&policy).WithStatusSubresource(&policy).Build()
	keeper := breaker.New(breaker.Options{
		API: breaker.API{Reader: store, Status: store.Status(), Approvals: store, Recorder: w.recorder},
		Cluster: breaker.Cluster{
			Policies: w.policies.current, Live: func() int { return 1000 },
			Standing: func(tracker.Source, string) (first, last tracker.Taint, ok bool) { return first, last, false },
		},
		Lease: breaker.Lease{Leads: func() bool { return true }, Timeout: 5 * time.Second},
		Clock: clock.RealClock{}, Local: clock.RealClock{},
		Metrics: breaker.NewMetrics(prometheus.NewPedanticRegistry()),
	})
	w.options.Breaker, w.options.AttemptTimeout = keeper.Ask, 5*time.Second
	w.start()
	keeper.Follow(w.evictor)
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- keeper.Start(ctx) }()
	w.t.Cleanup(func() {
		w.kill()
		stop()
		require.NoError(w.t, <-done)
	})
	return func() int {
		var stored v1alpha1.EvictionPolicy
		require.NoError(w.t, store.Get(w.t.Context(), client.ObjectKeyFromObject(&policy), &stored))
		pods := 0
		if stored.Status.Breaker != nil {
			for _, grant := range stored.Status.Breaker.Granted {
				pods += int(grant.Pods)
			}
		}
		return pods
	}
}

func tenInTenMinutes(s *v1alpha1.EvictionPolicySpec) {
	s.Breaker = &v1alpha1.EvictionBreaker{MaxPods: new(int32(10)), Window: metav1.Duration{Duration: 10 * time.Minute}}
}

func TestI02APodIsCountedOnceByABreaker(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{
		"the API server is not well":                errEtcd,
		"a webhook that has to see it is not there": errBrokenWebhook,
		"a proxy has no API server":                 apierrors.NewServiceUnavailable("no backend"),
		"the answer is late":                        apierrors.NewTimeoutError("too late", 0),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				granted := withBreaker(w, newPolicy("p", tenInTenMinutes))
				w.api.setFaults(every(is("delete pods default/a"), answer), nil)
				w.setNode("n", noExecute("gpu"))
				w.setPod(newPod("a", "n"))
				w.pass(5 * time.Minute)
				w.stays(podA)
				require.LessOrEqual(t, granted(), 1, "one pod may have left")
				w.setPod(newPod("b", "n"))
				w.pass(time.Minute)
				w.leaves(podB)
				w.api.setFaults(nil, nil)
				w.pass(time.Minute)
				w.leaves(podA)
				require.Equal(t, 2, granted())
			})
		})
	}
}

func TestINV5APodThatLeavesAfterTheWindowIsCountedInItsOwn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		granted := withBreaker(w, newPolicy("p", tenInTenMinutes))
		w.api.setFaults(every(is("delete pods"), errEtcd), nil)
		w.setNode("n", noExecute("gpu"))
		for i := range 10 {
			w.setPod(newPod(fmt.Sprint("p", i), "n"))
		}
		w.pass(11 * time.Minute)
		require.Equal(t, 10, granted(), "each is counted once within the window")
		w.api.setFaults(nil, nil)
		w.pass(time.Minute)
		require.Equal(t, 10, granted())
		for i := range 10 {
			w.leaves(fmt.Sprint("default/p", i))
		}
		w.setPod(newPod("a", "n"))
		w.pass(time.Minute)
		w.stays(podA)
	})
}

func TestAPaceCountsAPodOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.setPolicy(newPolicy("p", func(s *v1alpha1.EvictionPolicySpec) {
			s.Pace = &v1alpha1.EvictionPace{PodsPerSecond: 1, Burst: 2}
		}))
		w.api.setFaults(every(is("delete pods default/a"), errEtcd), nil)
		w.start()
		w.setNode("n", noExecute("gpu"))
		w.setPod(newPod("a", "n"))
		w.pass(50 * time.Millisecond) // three attempts or more
		require.GreaterOrEqual(t, matches(w.api.took(), "delete pods default/a"), 2)
		w.setPod(newPod("b", "n"))
		w.pass(10 * time.Millisecond)
		w.leaves(podB)
	})
}

func TestEachRequestIsMadeByALeaderWhoHasReadTheTaint(t *testing.T) {
	t.Parallel()
	t.Run("H05 INV-6 a machine that is suspended after the condition was set does not delete", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			local := &steppedClock{}
			w.options.Local, w.options.Leads = local, func() bool { return local.ahead.Load() == 0 }
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n"))
			w.api.setFaults(nil, once(is("patch pods/status"), func() error {
				local.step(30 * time.Minute)
				w.api.nodes.clear()
				w.setTaintsQuietly("n")
				return nil
			}))
			w.start()
			w.pass(time.Minute)
			w.stays(podA)
		})
	})
	t.Run("INV-6 a lease that is lost after the condition was set is asked for again", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			var lost atomic.Bool
			w.options.Leads = func() bool { return !lost.Load() }
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n"))
			w.api.setFaults(nil, once(is("patch pods/status"), func() error {
				lost.Store(true)
				return nil
			}))
			w.start()
			w.pass(time.Minute)
			w.stays(podA)
			lost.Store(false)
			w.pass(time.Minute)
			w.leaves(podA)
		})
	})
	t.Run("INV-3 a pod is not deleted for a taint that was read more than MaxAge ago", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.options.AttemptTimeout = DefaultMaxAge
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n", tolerationFor("gpu", 9)))
			w.setPod(newPod("b", "n", tolerationFor("gpu", 14)))
			w.start()
			w.pass(10100 * time.Millisecond)
			w.leaves(podA) // the node was read at 10 s
			w.api.setLag(true)
			w.setNode("n")
			w.api.setFaults(nil, func(r request) error {
				if strings.HasPrefix(string(r), "patch pods/status default/b") {
					time.Sleep(DefaultMaxAge - 100*time.Millisecond)
				}
				return nil
			})
			w.pass(30 * time.Second)
			w.stays(podB)
		})
	})
}

func TestI05TheConditionDoesNotHoldUpADeletion(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{
		"a webhook on pods/status is not there":    errBrokenWebhook,
		"the status alone cannot be written":       errEtcd,
		"the API server has no words for it (50x)": apierrors.NewGenericServerResponse(http.StatusBadGateway, "patch", podResource, "a", "", 0, true),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.api.setFaults(every(is("patch pods/status"), answer), nil)
				w.start()
				w.setNode("n", noExecute("gpu"))
				w.setPod(newPod("a", "n"))
				w.pass(time.Minute + 30*time.Second)
				w.leaves(podA)
			})
		})
	}
	t.Run("an API server that is away for a while gets it", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.api.setFaults(func(request) error { return errEtcd }, nil)
			w.setPod(newPod("a", "n"))
			w.pass(5 * time.Minute)
			w.api.setFaults(nil, nil)
			w.api.took()
			w.pass(time.Minute)
			w.leaves(podA)
			require.Equal(t, 1, matches(w.api.took(), "patch pods/status default/a"))
		})
	})
}

func TestEachPodThatIsHeldUpIsToldOf(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.api.setFaults(every(is("delete pods"), errDenied), nil)
		w.setNode("n", noExecute("gpu"))
		const pods = 300
		for i := range pods {
			w.api.store(newPod(fmt.Sprint("p", i), "n"))
		}
		w.start()
		w.pass(time.Hour)
		told := map[string]int{}
		for _, event := range w.recorder.took() {
			if strings.Contains(event, "TaintManagerEvictionHeldUp") {
				told[event]++
			}
		}
		require.Len(t, told, pods)
		for event, times := range told {
			require.Equal(t, 1, times, event)
		}
	})
}

func TestOneFalseAnswerDoesNotForgetAPod(t *testing.T) {
	t.Parallel()
	notThere := func(what string) func() error {
		return func() error { return apierrors.NewNotFound(podResource, what) }
	}
	for _, falsely := range []string{"patch pods/status default/a", "delete pods default/a", "get nodes n"} {
		t.Run("404 for "+falsely, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.setNode("n", noExecute("gpu"))
				w.setPod(newPod("a", "n"))
				w.api.setFaults(once(is(falsely), notThere("a")), nil)
				w.start()
				w.pass(time.Minute)
				w.leaves(podA)
			})
		})
	}
	t.Run("404 for the pod that is read after a conflict", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n"))
			conflicts := once(is("delete pods default/a"), func() error { return errConflict })
			missing := once(is("get pods default/a"), notThere("a"))
			w.api.setFaults(func(r request) error {
				if err := conflicts(r); err != nil {
					return err
				}
				return missing(r)
			}, nil)
			w.start()
			w.pass(time.Minute)
			w.leaves(podA)
		})
	})
}

func TestNobodyIsEvictedForATaintThatABackupDoesNotHave(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.setNode("n")
		backup, version := w.api.node("n"), w.api.version
		w.setNode("n", noExecute("gpu"))
		w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
		w.start()
		w.pass(30 * time.Second)
		w.api.nodes.clear() // the watch has not begun again when the pod is due
		w.api.restore(backup, version)
		w.pass(time.Hour)
		w.stays(podA)
		require.Zero(t, w.value("tollgate_evictions_pending"))
	})
}
