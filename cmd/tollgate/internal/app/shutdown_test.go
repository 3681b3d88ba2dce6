package app_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/app"
)

const period = 5 * time.Second

func TestE06ServingGoesOnForAPeriodAfterTheEndWasToldAndReadinessDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shutdownCtx, shutdown := context.WithCancel(t.Context())
		serveCtx, end := app.Extend(shutdownCtx, period, clock.RealClock{})
		defer end()
		ready := app.Ready(shutdownCtx)

		time.Sleep(time.Hour)
		require.NoError(t, serveCtx.Err())
		require.NoError(t, ready(nil))

		shutdown()
		require.ErrorContains(t, ready(nil), "told to end")
		time.Sleep(period - time.Nanosecond)
		synctest.Wait()
		require.NoError(t, serveCtx.Err(), "the period is not over")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.ErrorIs(t, serveCtx.Err(), context.Canceled)
	})
}

func TestServingEndsAtOnceWhereThereIsNoPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shutdownCtx, shutdown := context.WithCancel(t.Context())
		serveCtx, end := app.Extend(shutdownCtx, 0, clock.RealClock{})
		defer end()
		began := time.Now()
		shutdown()
		<-serveCtx.Done()
		require.Zero(t, time.Since(began))
	})
}

func TestServingEndsEarlierThanToldWhenItsProgramDoes(t *testing.T) {
	tests := map[string]func(shutdown context.CancelFunc){
		"before it was told to":     func(context.CancelFunc) {},
		"while it is being drained": func(shutdown context.CancelFunc) { shutdown(); synctest.Wait() },
	}
	for name, before := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shutdownCtx, shutdown := context.WithCancel(t.Context())
				defer shutdown()
				serveCtx, end := app.Extend(shutdownCtx, period, clock.RealClock{})
				before(shutdown)
				require.NoError(t, serveCtx.Err())
				end()
				require.Error(t, serveCtx.Err())
				synctest.Wait() // No goroutine is left, or the bubble does not end.
			})
		})
	}
}

type key struct{}

func TestWhatServesFindsWhatIsStoredInTheContext(t *testing.T) {
	serveCtx, end := app.Extend(context.WithValue(t.Context(), key{}, "log"), period, clock.RealClock{})
	defer end()
	require.Equal(t, "log", serveCtx.Value(key{}))
}

func TestWorkEndsWithWhatComesFirst(t *testing.T) {
	errBroken := errors.New("broken")
	tests := map[string]struct {
		first string
		ends  func(ctx context.Context) error
		want  error
	}{
		"the end was told":                       {"told", func(context.Context) error { return nil }, nil},
		"the end was told, and the work says so": {"told", context.Cause, nil},
		"the end was told, and the work fails":   {"told", func(context.Context) error { return errBroken }, errBroken},
		"the manager ends":                       {"manager", func(context.Context) error { return nil }, nil},
		"the manager ends, and the work says so": {"manager", context.Cause, context.Canceled},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ends := map[string]context.CancelFunc{}
			shutdownCtx, shutdown := context.WithCancel(t.Context())
			defer shutdown()
			managed, stop := context.WithCancel(t.Context())
			defer stop()
			ends["told"], ends["manager"] = shutdown, stop
			started := make(chan struct{})
			work := app.Until(shutdownCtx, manager.RunnableFunc(func(ctx context.Context) error {
				close(started)
				<-ctx.Done()
				return test.ends(ctx)
			}))
			elected, ok := work.(manager.LeaderElectionRunnable)
			require.True(t, ok)
			require.False(t, elected.NeedLeaderElection(), "or the manager would never start it")
			got := make(chan error, 1)
			go func() { got <- work.Start(managed) }()
			<-started
			ends[test.first]()
			require.ErrorIs(t, <-got, test.want)
		})
	}
}

func TestWorkThatEndsByItselfHasItsError(t *testing.T) {
	work := app.Until(t.Context(), manager.RunnableFunc(func(context.Context) error { return context.Canceled }))
	require.ErrorIs(t, work.Start(t.Context()), context.Canceled)
}
