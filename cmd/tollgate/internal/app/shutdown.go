package app

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Extend returns a context that ends one period after shutdownCtx, at once if the period is zero,
// and has its values. The caller must call end, which ends it at any time.
func Extend(shutdownCtx context.Context, period time.Duration, local clock.Clock) (serveCtx context.Context, end context.CancelFunc) {
	serveCtx, cancel := context.WithCancel(context.WithoutCancel(shutdownCtx))
	stop := context.AfterFunc(shutdownCtx, func() {
		defer cancel()
		logr.FromContextOrDiscard(shutdownCtx).Info("told to end, answering reviews for a while longer", "period", period)
		select {
		case <-local.After(period):
		case <-serveCtx.Done():
		}
	})
	return serveCtx, func() {
		stop()
		cancel()
	}
}

// Ready returns a readiness check that fails once shutdownCtx is done.
func Ready(shutdownCtx context.Context) healthz.Checker {
	return func(*http.Request) error {
		if shutdownCtx.Err() != nil {
			return errors.New("it was told to end")
		}
		return nil
	}
}

// CloseConnections returns a handler whose responses have "Connection: close" once shutdownCtx is
// done. An API server calls the webhooks of a Service by HTTP/1.1 and keeps its connections after the
// endpoint is removed: one could be closed while a review is sent on it, which is not retried.
func CloseConnections(shutdownCtx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if shutdownCtx.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Until returns a runnable of every replica that stops work when the manager stops or shutdownCtx
// is done. It returns no error if shutdownCtx caused the end, because an error would stop the
// manager too.
func Until(shutdownCtx context.Context, work manager.RunnableFunc) manager.Runnable {
	return until{func(ctx context.Context) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(shutdownCtx, stop)()
		err := work(ctx)
		if shutdownCtx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}}
}

type until struct{ manager.RunnableFunc }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (until) NeedLeaderElection() bool { return false }
