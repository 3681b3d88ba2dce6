package controller_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// steps records the attempts of a controller.
type steps struct {
	mu    sync.Mutex
	keys  []string
	leads bool
	again time.Duration
	err   error
	took  time.Duration
	late  error
}

func (s *steps) step(ctx context.Context, key string) (time.Duration, error) {
	s.mu.Lock()
	s.keys = append(s.keys, key)
	again, err, took := s.again, s.err, s.took
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		s.late = ctx.Err()
	case <-time.After(took):
	}
	return again, err
}

func (s *steps) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *steps) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys)
}

// run calls test while a controller runs that reconciles with the step of s.
func run(t *testing.T, test func(t *testing.T, c *controller.Controller[string], s *steps)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &steps{leads: true}
		var c *controller.Controller[string]
		c = controller.New(base(func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.leads
		}), controller.Options[string]{Name: "test", Started: func() { c.Add("first") }, Reconcile: s.step})
		c.Add("before it runs")
		lead(t, c, func() {
			require.Equal(t, 1, s.count())
			test(t, c, s)
		})
		c.Add("after it ran")
		rest(time.Hour)
	})
}

// base returns what a controller gets that leads when leads says so.
func base(leads func() bool) controller.Base {
	return controller.Base{Local: clock.RealClock{}, Leads: leads, Timeout: 5 * time.Second}
}

func always() bool { return true }

// lead runs a controller while during runs.
func lead[K comparable](t *testing.T, c *controller.Controller[K], during func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Start(ctx) }()
	rest(time.Second)
	during()
	stop()
	require.NoError(t, <-done)
}

func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestWhatWaitsIsLookedAtOnceHoweverOftenItWasAdded(t *testing.T) {
	run(t, func(t *testing.T, c *controller.Controller[string], s *steps) {
		t.Helper()
		s.set(func() { s.took = time.Second })
		c.Add("under way") // keeps the only worker busy until all keys are added
		synctest.Wait()
		c.Add("a", "a", "b")
		rest(time.Hour)
		s.set(func() { require.Equal(t, []string{"first", "under way", "a", "b"}, s.keys) })
	})
}

func TestWhatIsAddedWhileItIsLookedAtIsLookedAtAgain(t *testing.T) {
	run(t, func(t *testing.T, c *controller.Controller[string], s *steps) {
		t.Helper()
		s.set(func() { s.took = time.Second })
		c.Add("a")
		synctest.Wait()
		c.Add("a", "a")
		rest(time.Hour)
		s.set(func() { require.Equal(t, []string{"first", "a", "a"}, s.keys) })
	})
}

func TestAStepSaysWhenToLookAgain(t *testing.T) {
	run(t, func(t *testing.T, c *controller.Controller[string], s *steps) {
		t.Helper()
		s.set(func() { s.again = time.Minute })
		c.Add("a")
		rest(10*time.Minute + time.Second)
		require.Equal(t, 1+11, s.count())
	})
}

func TestFailuresAreTriedAgainEverMoreRarely(t *testing.T) {
	run(t, func(t *testing.T, c *controller.Controller[string], s *steps) {
		t.Helper()
		s.set(func() { s.err = errors.New("no") })
		c.Add("a")
		rest(10 * time.Minute)
		require.Greater(t, s.count(), 20)
		require.Less(t, s.count(), 35)
		s.set(func() { s.err = nil })
		rest(time.Minute)
		count := s.count()
		rest(time.Hour)
		require.Equal(t, count, s.count())
	})
}

func TestATermBeginsWithoutTheBackoffOfAnEarlierOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &steps{leads: true, err: errors.New("no")}
		var c *controller.Controller[string]
		c = controller.New(base(always), controller.Options[string]{Name: "test", Started: func() { c.Add("a") }, Reconcile: s.step})
		inTheFirstSecond := func() (count int) {
			s.set(func() { s.keys = nil })
			lead(t, c, func() {
				count = s.count()
				rest(10 * time.Minute)
			})
			return count
		}
		first := inTheFirstSecond()
		require.Equal(t, first, inTheFirstSecond())
	})
}

func TestWhatCannotBeFinishedIsNamedInTheLog(t *testing.T) {
	type key struct{ name string }
	for name, test := range map[string]struct {
		describe func(key) string
		want     string
	}{
		"as the controller describes it": {func(k key) string { return "Node/" + k.name }, `"key"="Node/a"`},
		"or as it prints":                {nil, `"key"="{a}"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lines := make(chan string, 1)
				log := funcr.New(func(_, line string) { lines <- line }, funcr.Options{})
				var c *controller.Controller[key]
				c = controller.New(base(always), controller.Options[key]{
					Name: "test", Describe: test.describe, Started: func() { c.Add(key{"a"}) },
					Reconcile: func(context.Context, key) (time.Duration, error) { return time.Hour, errors.New("no") },
				})
				ctx, stop := context.WithCancel(logr.NewContext(t.Context(), log))
				done := make(chan error)
				go func() { done <- c.Start(ctx) }()
				require.Contains(t, <-lines, test.want)
				stop()
				require.NoError(t, <-done)
			})
		})
	}
}

func TestI05TheServerSaysHowLongToWait(t *testing.T) {
	run(t, func(t *testing.T, c *controller.Controller[string], s *steps) {
		t.Helper()
		s.set(func() { s.err = apierrors.NewTooManyRequests("slow down", 20) })
		c.Add("a")
		rest(19 * time.Second)
		require.Equal(t, 2, s.count())
		rest(2 * time.Second)
		require.Equal(t, 3, s.count())
	})
}

func TestNothingIsDoneWithoutTheLease(t *testing.T) {
	run(t, func(t *testing.T, c *controller.Controller[string], s *steps) {
		t.Helper()
		s.set(func() { s.leads = false })
		c.Add("a")
		rest(time.Hour)
		require.Equal(t, 1, s.count())
		s.set(func() { s.leads = true })
		rest(2 * time.Second)
		require.Equal(t, 2, s.count())
	})
}

func TestAStepEndsInTime(t *testing.T) {
	run(t, func(t *testing.T, c *controller.Controller[string], s *steps) {
		t.Helper()
		s.set(func() { s.took = time.Hour })
		c.Add("a")
		rest(6 * time.Second)
		s.set(func() { require.ErrorIs(t, s.late, context.DeadlineExceeded) })
	})
}

func TestTheControllerEndsWithItsContext(t *testing.T) {
	run(t, func(t *testing.T, c *controller.Controller[string], s *steps) {
		t.Helper()
		s.set(func() { s.took = 2 * time.Second })
		c.Add("a", "b", "c") // one step runs and two keys wait when the loop stops
		rest(time.Second)
		require.Equal(t, 2, s.count())
	})
}

// informers is a cache whose kind is defined after some calls.
type informers struct {
	client.Reader
	cache.Informer

	undefined int
	calls     int
	handlers  int
}

func (i *informers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	i.calls++
	if i.calls <= i.undefined {
		return nil, errors.New("no such kind")
	}
	return i, nil
}

func (i *informers) AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.handlers++
	return nil, nil //nolint:nilnil // It is only handed back.
}

func (i *informers) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	i.handlers--
	return nil
}

func TestAKindThatIsDefinedLaterIsWatchedThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cached := &informers{undefined: 3}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			controller.Watch(ctx, cached, &v1alpha1.GatePolicy{}, toolscache.ResourceEventHandlerFuncs{}, clock.RealClock{})
		}()
		rest(time.Minute)
		require.Equal(t, 4, cached.calls)
		require.Equal(t, 1, cached.handlers)
		stop()
		<-done
		require.Zero(t, cached.handlers)
	})
}

// A webhook can answer with a Retry-After of a day.
func TestL1NoAnswerHoldsAnItemUpForLongerThanFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reconciled []time.Time
		var c *controller.Controller[string]
		c = controller.New(base(always), controller.Options[string]{
			Name: "test", Started: func() { c.Add("a") },
			Reconcile: func(context.Context, string) (time.Duration, error) {
				reconciled = append(reconciled, time.Now())
				return 0, apierrors.NewTooManyRequests("tomorrow", 24*60*60)
			},
		})
		lead(t, c, func() { rest(11 * time.Minute) })
		require.Len(t, reconciled, 3)
		for i := range reconciled[1:] {
			require.Equal(t, 5*time.Minute, reconciled[i+1].Sub(reconciled[i]))
		}
	})
}

// A DelayError delays a key, and neither counts as a failure nor ends a row of failures.
func TestADelayIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var notBefore time.Time
		var failed []time.Duration
		var c *controller.Controller[string]
		c = controller.New(base(always), controller.Options[string]{
			Name: "test", Started: func() { c.Add("a") },
			Reconcile: func(_ context.Context, key string) (time.Duration, error) {
				if wait := time.Until(notBefore); wait > 0 {
					return 0, fmt.Errorf("not yet: %w", controller.DelayError(wait))
				}
				failed = append(failed, time.Since(began))
				wait := c.Backoff(key, errors.New("no"))
				notBefore = time.Now().Add(wait)
				return 0, controller.DelayError(wait)
			},
		})
		lead(t, c, func() {
			for range 200 {
				c.Add("a") // Events do not change the times of attempts.
				rest(10 * time.Millisecond)
			}
		})
		require.Equal(t, []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond, 1500 * time.Millisecond}, failed)
	})
}

// A key whose reconcile panics is retried like one whose reconcile fails, and delays no
// other key.
func TestAPanicIsOfOneItemOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reconciled []string
		var c *controller.Controller[string]
		c = controller.New(base(always), controller.Options[string]{
			Name: "test", Started: func() { c.Add("bad", "good") },
			Reconcile: func(_ context.Context, key string) (time.Duration, error) {
				reconciled = append(reconciled, key)
				if key == "bad" && len(reconciled) < 3 {
					panic("a defect")
				}
				return 0, nil
			},
		})
		lead(t, c, func() { rest(time.Minute) })
		require.Equal(t, []string{"bad", "good", "bad"}, reconciled)
	})
}

// policies signals changes.
type policies struct {
	changed chan struct{}
	stopped bool
}

func (p *policies) Current() *policyset.Set { return nil }

func (p *policies) Subscribe() (<-chan struct{}, func()) {
	return p.changed, func() { p.stopped = true }
}

// Each term of leadership begins with a call of Started, watches anew, and ends without a
// watch, a subscription or a queue.
func TestEachTermBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cached, policies := &informers{}, &policies{changed: make(chan struct{})}
		base := base(always)
		base.Cache, base.Policies = cached, policies
		terms, changes := 0, 0
		c := controller.New(base, controller.Options[string]{
			Name: "test", Started: func() { terms++ }, PoliciesChanged: func(context.Context) { changes++ },
			Watches:   map[client.Object]toolscache.ResourceEventHandler{&v1alpha1.GatePolicy{}: toolscache.ResourceEventHandlerFuncs{}},
			Reconcile: func(context.Context, string) (time.Duration, error) { return 0, nil },
		})
		for term := range 3 {
			policies.stopped = false
			lead(t, c, func() {
				policies.changed <- struct{}{}
				synctest.Wait()
				require.Equal(t, []int{term + 1, term + 1, 1}, []int{terms, changes, cached.handlers})
			})
			require.Zero(t, cached.handlers)
			require.True(t, policies.stopped)
		}
	})
}

func TestALoopGoesOnAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var calls atomic.Int32
		go controller.Loop(ctx, "test", clock.RealClock{}, func(ctx context.Context) {
			if calls.Add(1) < 3 {
				panic("a defect")
			}
			<-ctx.Done()
		})
		synctest.Wait()
		require.EqualValues(t, 1, calls.Load(), "it waits a while")
		rest(time.Minute)
		require.EqualValues(t, 3, calls.Load())
		stop()
		rest(time.Minute)
		require.EqualValues(t, 3, calls.Load())
	})
}
