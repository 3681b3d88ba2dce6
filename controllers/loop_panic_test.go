package controllers_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/controllers"
)

// A key whose step panics is retried like one whose step fails, and delays no other key.
func TestAPanicIsOfOneItemOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looked []string
		l := controllers.NewLoop(controllers.LoopOptions[string]{
			Name: "test", Clock: clock.RealClock{}, Timeout: 5 * time.Second, Workers: 1, Leads: func() bool { return true },
			Step: func(_ context.Context, key string) (time.Duration, error) {
				looked = append(looked, key)
				if key == "bad" && len(looked) < 3 {
					panic("a defect")
				}
				return 0, nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		started, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			l.Run(ctx, func() { close(started) })
		}()
		<-started
		l.Add("bad", "good")
		time.Sleep(time.Minute)
		cancel()
		<-ended
		require.Equal(t, []string{"bad", "good", "bad"}, looked)
	})
}
