package webhook

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/tollgate-dev/tollgate/webhook/handlers"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// arrivals is what became of reviews that came one after the other, each at its time, whether or
// not those before it were answered.
type arrivals struct {
	mu sync.Mutex
	// sent are all reviews, judged those with a verdict, and shed those that were told to come again.
	sent, judged, shed int
	// slowest is the longest that a review with a verdict took, and slowestShed one without.
	slowest, slowestShed time.Duration
}

// come sends a review to an endpoint in each interval, for a while, and returns when all were answered.
func come(t *testing.T, endpoint http.Handler, body []byte, interval, lasts time.Duration) *arrivals {
	t.Helper()
	var (
		all     arrivals
		running sync.WaitGroup
	)
	for range lasts / interval {
		running.Go(func() {
			start := time.Now()
			answer := record(t, endpoint, body)
			took := time.Since(start)
			all.mu.Lock()
			defer all.mu.Unlock()
			all.sent++
			switch {
			case answer.Code == http.StatusOK:
				all.judged++
				all.slowest = max(all.slowest, took)
			case answer.Code == http.StatusTooManyRequests && answer.Header().Get("Retry-After") == "1":
				all.shed++
				all.slowestShed = max(all.slowestShed, took)
			}
		})
		time.Sleep(interval)
	}
	running.Wait()
	return &all
}

// Ten times as many reviews come as there is room for: those with room have their verdict as soon as
// without the others, which are told so at once, and nothing of it is left when it is over.
func TestA14WhatThereIsNoRoomForIsShedAtOnceAndTheRestIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			service  = 100 * time.Millisecond
			places   = 50
			interval = service / places // in which one of them has its verdict
			half     = 2 * interval
			overload = 10
			lasts    = 4 * time.Second
		)
		body := marshal(t, podReview(t, admissionv1.Create, simplePod, ""))
		opts := testOptions()
		opts.Budget = time.Second
		opts.Bodies = NewBodies(int64(places * len(body)))
		endpoint := newEndpoint(EndpointValidate, opts, map[handlers.Resource]handlers.Handler{
			pods: func(ctx context.Context, _ *review.Request) (handlers.Result, error) {
				select {
				case <-ctx.Done():
					return handlers.Result{}, ctx.Err()
				case <-time.After(service):
					return allowed(), nil
				}
			},
		})
		const capacity = int(lasts / interval)

		under := come(t, endpoint, body, half, lasts)
		require.Equal(t, capacity/2, under.judged, "there is room for each")
		over := come(t, endpoint, body, interval/overload, lasts)
		require.Equal(t, overload*capacity, over.sent)
		require.Equal(t, over.sent, over.judged+over.shed, "each is judged, or told to come again")
		require.GreaterOrEqual(t, over.judged, capacity*8/10, "of what it can do it does most")
		require.Equal(t, service, over.slowest, "none of them waits for another")
		require.Zero(t, over.slowestShed, "nobody waits to be told")
		after := come(t, endpoint, body, half, lasts)
		require.Equal(t, capacity/2, after.judged, "nothing is left of it")
		require.Zero(t, opts.Bodies.used.Load())
	})
}
