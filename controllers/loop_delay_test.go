package controllers_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/controllers"
)

// A webhook can answer with a Retry-After of a day.
func TestL1NoAnswerHoldsAnItemUpForLongerThanFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looked []time.Time
		l := controllers.NewLoop(controllers.LoopOptions[string]{
			Name: "test", Clock: clock.RealClock{}, Timeout: 5 * time.Second, Workers: 1, Leads: func() bool { return true },
			Step: func(context.Context, string) (time.Duration, error) {
				looked = append(looked, time.Now())
				return 0, apierrors.NewTooManyRequests("tomorrow", 24*60*60)
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		started, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			l.Run(ctx, func() { close(started) })
		}()
		<-started
		l.Add("a")
		time.Sleep(11 * time.Minute)
		cancel()
		<-ended
		require.Len(t, looked, 3)
		for i := range looked[1:] {
			require.Equal(t, 5*time.Minute, looked[i+1].Sub(looked[i]))
		}
	})
}
