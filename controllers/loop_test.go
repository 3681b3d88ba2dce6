package controllers_test

import (
	"context"
	"errors"
	"sync"
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
	"github.com/tollgate-dev/tollgate/controllers"
)

// steps records the steps of a loop.
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

// runLoop calls test while a loop with the step of s runs.
func runLoop(t *testing.T, test func(t *testing.T, l *controllers.Loop[string], s *steps)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &steps{leads: true}
		l := controllers.NewLoop(controllers.LoopOptions[string]{
			Name: "test", Clock: clock.RealClock{}, Timeout: 5 * time.Second, Step: s.step,
			Leads: func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.leads
			},
		})
		l.Add("before it runs")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Run(ctx, func() { l.Add("first") })
		}()
		rest(time.Second)
		require.Equal(t, 1, s.count())
		test(t, l, s)
		stop()
		<-done
		l.Add("after it ran")
		rest(time.Hour)
	})
}

func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestWhatWaitsIsLookedAtOnceHoweverOftenItWasAdded(t *testing.T) {
	runLoop(t, func(t *testing.T, l *controllers.Loop[string], s *steps) {
		t.Helper()
		s.set(func() { s.took = time.Second })
		l.Add("under way") // keeps the only worker busy until all keys are added
		synctest.Wait()
		l.Add("a", "a", "b")
		rest(time.Hour)
		s.set(func() { require.Equal(t, []string{"first", "under way", "a", "b"}, s.keys) })
	})
}

func TestWhatIsAddedWhileItIsLookedAtIsLookedAtAgain(t *testing.T) {
	runLoop(t, func(t *testing.T, l *controllers.Loop[string], s *steps) {
		t.Helper()
		s.set(func() { s.took = time.Second })
		l.Add("a")
		synctest.Wait()
		l.Add("a", "a")
		rest(time.Hour)
		s.set(func() { require.Equal(t, []string{"first", "a", "a"}, s.keys) })
	})
}

func TestAStepSaysWhenToLookAgain(t *testing.T) {
	runLoop(t, func(t *testing.T, l *controllers.Loop[string], s *steps) {
		t.Helper()
		s.set(func() { s.again = time.Minute })
		l.Add("a")
		rest(10*time.Minute + time.Second)
		require.Equal(t, 1+11, s.count())
	})
}

func TestFailuresAreTriedAgainEverMoreRarely(t *testing.T) {
	runLoop(t, func(t *testing.T, l *controllers.Loop[string], s *steps) {
		t.Helper()
		s.set(func() { s.err = errors.New("no") })
		l.Add("a")
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
				l := controllers.NewLoop(controllers.LoopOptions[key]{
					Name: "test", Clock: clock.RealClock{}, Timeout: time.Second, Leads: func() bool { return true }, Describe: test.describe,
					Step: func(context.Context, key) (time.Duration, error) { return time.Hour, errors.New("no") },
				})
				ctx, stop := context.WithCancel(logr.NewContext(t.Context(), log))
				done := make(chan struct{})
				go func() {
					defer close(done)
					l.Run(ctx, func() { l.Add(key{"a"}) })
				}()
				require.Contains(t, <-lines, test.want)
				stop()
				<-done
			})
		})
	}
}

func TestI05TheServerSaysHowLongToWait(t *testing.T) {
	runLoop(t, func(t *testing.T, l *controllers.Loop[string], s *steps) {
		t.Helper()
		s.set(func() { s.err = apierrors.NewTooManyRequests("slow down", 20) })
		l.Add("a")
		rest(19 * time.Second)
		require.Equal(t, 2, s.count())
		rest(2 * time.Second)
		require.Equal(t, 3, s.count())
	})
}

func TestNothingIsDoneWithoutTheLease(t *testing.T) {
	runLoop(t, func(t *testing.T, l *controllers.Loop[string], s *steps) {
		t.Helper()
		s.set(func() { s.leads = false })
		l.Add("a")
		rest(time.Hour)
		require.Equal(t, 1, s.count())
		s.set(func() { s.leads = true })
		rest(2 * time.Second)
		require.Equal(t, 2, s.count())
	})
}

func TestAStepEndsInTime(t *testing.T) {
	runLoop(t, func(t *testing.T, l *controllers.Loop[string], s *steps) {
		t.Helper()
		s.set(func() { s.took = time.Hour })
		l.Add("a")
		rest(6 * time.Second)
		s.set(func() { require.ErrorIs(t, s.late, context.DeadlineExceeded) })
	})
}

func TestTheLoopEndsWithItsContext(t *testing.T) {
	runLoop(t, func(t *testing.T, l *controllers.Loop[string], s *steps) {
		t.Helper()
		s.set(func() { s.took = 2 * time.Second })
		l.Add("a", "b", "c") // one step runs and two keys wait when the loop stops
		rest(time.Second)
		require.Equal(t, 2, s.count())
	})
}

// informers is a cache whose kind is defined after some calls.
type informers struct {
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
			controllers.Watch(ctx, cached, &v1alpha1.GatePolicy{}, toolscache.ResourceEventHandlerFuncs{}, clock.RealClock{})
		}()
		rest(time.Minute)
		require.Equal(t, 4, cached.calls)
		require.Equal(t, 1, cached.handlers)
		stop()
		<-done
		require.Zero(t, cached.handlers)
	})
}
