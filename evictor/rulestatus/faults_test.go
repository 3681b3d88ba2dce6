package rulestatus

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/tracker"
)

var rules = schema.GroupResource{Group: resourcev1.GroupName, Resource: "devicetaintrules"}

const (
	// The bounds of the delay between two attempts to write one status.
	retryBase = 100 * time.Millisecond
	retryMax  = 30 * time.Second
)

// failing makes all requests fail.
func (w *world) failing(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = func(context.Context) error { return err }
	if err == nil {
		w.fault = nil
	}
}

// noSuchPath is how an API server answers that knows no such path.
func noSuchPath() error {
	return apierrors.NewGenericServerResponse(404, "patch", rules, "broken", "404 page not found", 0, true)
}

// outcomes returns how many writes came to an outcome.
func (w *world) outcomes(of string) int {
	return int(testutil.ToFloat64(w.options.Metrics.writes.WithLabelValues(of)))
}

func TestFailures(t *testing.T) {
	t.Parallel()

	t.Run("F10 a write that fails is repeated for ever, and not often", func(t *testing.T) {
		t.Parallel()
		for of, err := range map[string]error{
			string(act.Conflict):    apierrors.NewConflict(rules, "broken", errors.New("the object has been modified")),
			outcomeNotServed:        errNotServed,
			string(act.Throttled):   apierrors.NewTooManyRequests("slow down", 0),
			string(act.Denied):      apierrors.NewForbidden(rules, "broken", errors.New("RBAC says no")),
			string(act.Invalid):     apierrors.NewBadRequest("what is that"),
			string(act.Timeout):     apierrors.NewServerTimeout(rules, "patch", 0),
			string(act.Unavailable): errors.New("connection refused"),
			outcomeGone:             apierrors.NewNotFound(rules, "broken"),
		} {
			t.Run(of, func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					w.pod("shop", "a")
					w.failing(err)
					w.start()
					w.setEffect("broken", noExecute)
					for range 600 {
						w.pass(time.Second)
						w.controller.Add("broken")
					}
					require.Less(t, w.requests(), 35)
					require.Greater(t, w.requests(), 20)
					require.Equal(t, w.requests(), w.outcomes(of))
					w.written(0)
					w.failing(nil)
					w.pass(retryMax)
					w.says("broken", isTrue, ReasonPodsPendingEviction, "1 pod needs to be evicted in 1 namespace.")
					require.Equal(t, 1, w.outcomes(outcomeWritten))
				})
			})
		}
	})

	t.Run("VS-03 that rules have no status is said once for all of them, and again when it is news again", func(t *testing.T) {
		t.Parallel()
		for sentence, err := range map[string]error{"by discovery": errNotServed, "by the answer": noSuchPath()} {
			t.Run(sentence, func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					w.pod("shop", "a")
					w.failing(err)
					w.start()
					w.setEffect("broken", noExecute)
					w.setEffect("leaking", noExecute)
					w.pass(time.Hour)
					require.Equal(t, 1, w.said("not_served"))
					w.failing(nil)
					w.pass(time.Minute)
					w.failing(err)
					w.pod("shop", "b")
					w.pending("broken", "leaking")
					w.pass(time.Hour)
					require.Equal(t, 2, w.said("not_served"))
				})
			})
		}
	})

	t.Run("F10 what takes a human to change is tried every 10 s at most", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.failing(apierrors.NewForbidden(rules, "broken", errors.New("RBAC says no")))
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(59 * time.Second)
			require.LessOrEqual(t, w.requests(), 6)
		})
	})

	t.Run("failures that are over do not count for later ones", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.failing(errors.New("connection refused"))
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(10 * time.Minute)
			w.failing(nil)
			w.pass(10 * time.Minute)
			w.says("broken", isFalse, ReasonNotStarted, "")
			w.failing(errors.New("connection refused"))
			w.pod("shop", "a")
			w.pending("broken")
			w.failing(nil)
			w.pass(retryBase)
			w.says("broken", isTrue, ReasonPodsPendingEviction, "1 pod needs to be evicted in 1 namespace.")
		})
	})

	t.Run("failures of a rule that is deleted are forgotten", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.failing(errors.New("connection refused"))
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(time.Minute)
			w.deleteRule("broken")
			before := w.requests()
			w.setEffect("broken", noExecute)
			w.pass(retryBase)
			require.Equal(t, before+2, w.requests(), "the second attempt follows the first at once")
		})
	})

	t.Run("nothing more is asked for when the controller has to stop", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.hang(nil)
			for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
				w.setEffect(name, noExecute)
			}
			w.kill()
			require.Equal(t, workers, w.requests())
		})
	})

	t.Run("the API server is asked no sooner than it wants to be", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.failing(apierrors.NewTooManyRequests("slow down", 120))
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(119 * time.Second)
			require.Equal(t, 1, w.requests())
			w.pass(2 * time.Second)
			require.Equal(t, 2, w.requests())
		})
	})

	t.Run("nobody may have it wait for hours", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.failing(apierrors.NewTooManyRequests("slow down", 86400))
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(time.Second)
			w.failing(nil)
			asked := w.requests()
			w.pass(6 * time.Minute)
			require.Greater(t, w.requests(), asked)
		})
	})

	t.Run("a new generation does not wait for the failures of the old one", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.failing(errors.New("connection refused"))
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(time.Hour)
			w.failing(nil)
			w.setEffect("broken", none)
			w.written(1)
		})
	})

	t.Run("one rule that cannot be written keeps no other from being written", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.failing(apierrors.NewInvalid(schema.GroupKind{Kind: "DeviceTaintRule"}, "bad", nil))
			w.setEffect("bad", noExecute)
			w.pass(time.Minute)
			w.failing(nil)
			w.setEffect("good", noExecute)
			w.says("good", isTrue, ReasonSettling, settlingMessage)
		})
	})

	t.Run("a request that is never answered ends, and is made again", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			var hanging atomic.Bool
			hanging.Store(true)
			w.fault = func(ctx context.Context) error {
				if !hanging.Load() {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}
			w.base.Timeout = 3 * time.Second
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(10 * time.Second)
			require.GreaterOrEqual(t, w.outcomes(string(act.Timeout)), 3)
			hanging.Store(false)
			w.pass(time.Minute)
			w.says("broken", isFalse, ReasonNotStarted, "")
		})
	})

	t.Run("the answer to a write counts, also when the watch does not tell of it", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.deaf = true
			w.start()
			w.setEffect("previewed", none)
			w.setEffect("broken", noExecute)
			w.pass(10 * time.Second)
			w.says("broken", isFalse, ReasonNotStarted, "")
			w.written(3)
			w.pod("shop", "a")
			w.pending("broken")
			w.written(3)
			w.pass(time.Hour)
			w.written(5)
		})
	})

	t.Run("DE-63 conditions that others take away come back, not more often than every 10 s", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setEffect("broken", none)
			for range 100 {
				w.overwrite("broken")
				w.pass(time.Second)
			}
			w.written(11)
		})
	})

	t.Run("DE-63 another controller that writes the same condition is overruled, not more often than every 10 s", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.pod("shop", "a")
			w.start()
			w.setEffect("broken", noExecute)
			for range 100 {
				w.overwrite("broken", metav1.Condition{Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: isFalse, ObservedGeneration: 1, Reason: "Mine"})
				w.pass(time.Second)
			}
			w.written(11)
		})
	})
}

func TestLeading(t *testing.T) {
	t.Parallel()

	t.Run("H05 nobody writes who does not hold the lease", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			var leads atomic.Bool
			w.base.Leads = leads.Load
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(time.Minute)
			require.Zero(t, w.requests())
			leads.Store(true)
			w.pass(time.Second)
			w.written(1)
		})
	})

	t.Run("H05 the lease is asked for after the pods have been counted", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			var lost atomic.Bool
			w.base.Leads = func() bool { return !lost.Load() }
			decide := w.options.Decide
			w.options.Decide = func(s tracker.Situation) bool {
				lost.Store(true)
				return decide(s)
			}
			w.pod("shop", "a")
			w.start()
			w.setEffect("broken", noExecute)
			require.Zero(t, w.requests())
		})
	})

	t.Run("DE-53 nothing is said while not everything is known", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			var synced atomic.Bool
			w.options.Synced = synced.Load
			w.setEffect("early", noExecute)
			w.start()
			w.setEffect("broken", noExecute)
			w.pod("shop", "a")
			w.pass(time.Minute)
			require.Zero(t, w.requests())
			synced.Store(true)
			w.pass(time.Second)
			w.says("broken", isTrue, ReasonPodsPendingEviction, "1 pod needs to be evicted in 1 namespace.")
			w.says("early", isTrue, ReasonPodsPendingEviction, "1 pod needs to be evicted in 1 namespace.")
			synced.Store(false)
			w.tracker.SetDevicesKnown(false)
			w.pass(time.Hour)
			w.says("broken", isTrue, ReasonPodsPendingEviction, "1 pod needs to be evicted in 1 namespace.")
		})
	})

	t.Run("DE-55 while it does not run, it is deaf", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.kill()
			w.setEffect("broken", noExecute)
			w.pass(time.Minute)
			require.Zero(t, w.requests())
			w.run()
			w.written(1)
		})
	})
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	kind := schema.GroupKind{Group: resourcev1.GroupName, Kind: "DeviceTaintRule"}
	for sentence, c := range map[string]struct {
		err  error
		want string
	}{
		"no error":                   {nil, outcomeWritten},
		"VS-03 rules have no status": {fmt.Errorf("apply: %w", noSuchPath()), outcomeNotServed},
		"the server is not well":     {apierrors.NewGenericServerResponse(502, "patch", rules, "broken", "bad gateway", 0, true), string(act.Unavailable)},
		"the API has no rules":       {fmt.Errorf("apply: %w", errNotServed), outcomeNotServed},
		"the rule is deleted":        {apierrors.NewNotFound(rules, "broken"), outcomeGone},
		"another UID":                {apierrors.NewInvalid(kind, "broken", field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), "old", "field is immutable")}), outcomeGone},
		"invalid for other reasons":  {apierrors.NewInvalid(kind, "broken", field.ErrorList{field.Invalid(field.NewPath("status"), "x", "no")}), string(act.Invalid)},
		"invalid without a cause":    {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid}}, string(act.Invalid)},
		"conflict":                   {apierrors.NewConflict(rules, "broken", errors.New("modified")), string(act.Conflict)},
		"wrapped":                    {fmt.Errorf("apply: %w", apierrors.NewUnauthorized("who")), string(act.Denied)},
		"deadline":                   {fmt.Errorf("apply: %w", context.DeadlineExceeded), string(act.Timeout)},
		"internal error":             {apierrors.NewInternalError(errors.New("etcd is down")), string(act.Unavailable)},
		"a webhook is not there":     {apierrors.NewInternalError(errors.New(`failed calling webhook "a": connection refused`)), string(act.Unavailable)},
		"no connection":              {errors.New("connection refused"), string(act.Unavailable)},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, outcomeOf(c.err))
		})
	}
}
