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

// errTold is why a replica that was told to end is not ready.
var errTold = errors.New("it was told to end")

// Extend returns a context for what serves, which ends a period after told has ended; at
// once if the period is zero. What is stored in told is found in it too. End ends it
// in any case, and must be called.
func Extend(told context.Context, period time.Duration, local clock.Clock) (serving context.Context, end context.CancelFunc) {
	serving, cancel := context.WithCancel(context.WithoutCancel(told))
	stop := context.AfterFunc(told, func() {
		defer cancel()
		logr.FromContextOrDiscard(told).Info("told to end, answering reviews for a while longer", "period", period)
		timer := local.NewTimer(period)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-serving.Done():
		}
	})
	return serving, func() {
		stop()
		cancel()
	}
}

// Ready returns a readiness check that fails once told has ended.
func Ready(told context.Context) healthz.Checker {
	return func(*http.Request) error {
		if told.Err() != nil {
			return errTold
		}
		return nil
	}
}

// Finish returns a handler that answers as next does, and is not cut short when serving
// ends: controller-runtime gives requests the context of the server, so that its end would
// be that of all reviews which are under way. A client that goes away still ends its own.
//
// Once told has ended it asks the client, with every answer, to connect anew for the next
// request. An API server calls webhooks of a Service by HTTP/1.1 and keeps its connections,
// whatever becomes of the endpoint: in the end one would be closed just as a review is sent
// on it, which nobody sends again.
func Finish(told, serving context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if told.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		ctx, cancel := detach(r.Context(), serving)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// detach returns a context that ends with asked, unless that ends because serving did.
func detach(asked, serving context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(asked))
	stop := context.AfterFunc(asked, func() {
		if serving.Err() == nil {
			cancel()
		}
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// Until returns work as a runnable of every replica, which ends with its manager, or with
// told if that is earlier. That it ended because it was told to is no error, which would
// end the manager too.
func Until(told context.Context, work manager.Runnable) manager.Runnable {
	return until{func(ctx context.Context) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(told, stop)()
		err := work.Start(ctx)
		if told.Err() != nil && errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}}
}

type until struct{ manager.RunnableFunc }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (until) NeedLeaderElection() bool { return false }
