package evictor

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/controller"
)

// errBusyWebhook is what the API server makes of a webhook that answers 429.
var errBusyWebhook = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
	Message: `admission webhook "guard.example.com" denied the request: not now`, Details: &metav1.StatusDetails{RetryAfterSeconds: 86400},
}}

func TestThrottleOutlivesATerm(t *testing.T) {
	t.Parallel()
	t.Run("H05 who waited when the lease was lost is told of nothing any more", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			throttle := newThrottle(1, w.options.Local)
			require.True(t, throttle.enter(w.t.Context()))
			term, lost := context.WithCancel(w.t.Context())
			for range 3 {
				go throttle.enter(term)
			}
			synctest.Wait()
			lost()
			synctest.Wait()
			var entered atomic.Int32
			for range 3 {
				go func() {
					if throttle.enter(w.t.Context()) {
						entered.Add(1)
						throttle.leave(true, errConflict)
					}
				}()
			}
			synctest.Wait()
			throttle.leave(true, errConflict)
			synctest.Wait()
			require.EqualValues(t, 3, entered.Load())
		})
	})
	t.Run("H05 room that one was told of who is gone is told to the next", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			throttle := newThrottle(1, w.options.Local)
			require.True(t, throttle.enter(w.t.Context()))
			term, lost := context.WithCancel(w.t.Context())
			go throttle.enter(term)
			synctest.Wait()
			var entered atomic.Bool
			go func() { entered.Store(throttle.enter(w.t.Context())) }()
			synctest.Wait()
			lost()
			throttle.leave(true, errConflict)
			synctest.Wait()
			require.True(t, entered.Load(), "the next waits for ever")
		})
	})
	t.Run("I01 an attempt that asked nothing does not raise the limit", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			throttle := newThrottle(8, w.options.Local)
			throttle.enter(w.t.Context())
			throttle.leave(true, apierrors.NewTooManyRequests("", 0))
			throttle.enter(w.t.Context())
			throttle.leave(false, nil)
			require.InDelta(t, 4, throttle.full(), 0)
			throttle.enter(w.t.Context())
			throttle.leave(true, nil)
			require.InDelta(t, 4.25, throttle.full(), 0)
		})
	})
	t.Run("I05 a webhook that answers 429 slows down nobody else, and is asked again within 30 s", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			require.Equal(t, act.Denied, act.Classify(errBusyWebhook))
			w.start()
			w.setPod(newPod("a", "n"))
			w.setPod(newPod("b", "n"))
			w.api.setFaults(first(1, is("delete pods default/a"), errBusyWebhook), nil)
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Second)
			w.stays(podA)
			w.leaves(podB)
			require.InDelta(t, defaultWorkers, w.evictor.throttle.full(), 0)
			w.pass(controller.RetryMax)
			w.leaves(podA)
		})
	})
}

func TestWebhooksPickTheirCodes(t *testing.T) {
	t.Parallel()
	for _, code := range []int32{400, 403, 404, 409, 429, 500, 504} {
		err := *errBusyWebhook
		err.ErrStatus.Code = code
		err.ErrStatus.Reason = map[int32]metav1.StatusReason{404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonConflict}[code]
		require.Equal(t, act.Denied, act.Classify(&err), code)
	}
	require.Equal(t, act.Denied, act.Classify(apierrors.NewInternalError(errors.New(`failed calling webhook "guard.example.com": timeout`))))
}
