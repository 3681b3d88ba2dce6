package evictor

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tollgate-dev/tollgate/evictor/act"
)

// awayEffector evicts every pod in 20 ms, but for a time in which nobody answers. Who asks
// then, and is still there when it is over, leaves in that moment.
type awayEffector struct {
	gone, back time.Time

	mu   sync.Mutex
	left []time.Time
	hung int
}

func (a *awayEffector) Evict(ctx context.Context, _ act.Order) (act.Attempt, error) {
	took := 20 * time.Millisecond
	if now := time.Now(); !now.Before(a.gone) && now.Before(a.back) {
		took = a.back.Sub(now)
		a.note(func() { a.hung++ })
	}
	answer := time.NewTimer(took)
	defer answer.Stop()
	select {
	case <-ctx.Done():
		return act.Attempt{Sent: true}, apierrors.NewTimeoutError("nobody answers", 0)
	case now := <-answer.C:
		a.note(func() { a.left = append(a.left, now) })
		return act.Attempt{Outcome: act.Evicted, Sent: true}, nil
	}
}

func (a *awayEffector) note(what func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	what()
}

func TestI03(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]time.Duration{
		"I03 those who hung in a short outage leave at the pace":            attemptTimeout / 2,
		"I03 those whose attempts ended in a long outage leave at the pace": 3 * attemptTimeout,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				const pods, perSecond, burst = 500, 10, 40
				w.setPolicy(newPolicy("p", paced(perSecond, burst)))
				w.start()
				api := &awayEffector{gone: time.Now().Add(2 * time.Second)}
				api.back = api.gone.Add(outage)
				w.evictor.effector = api
				for i := range pods {
					w.setPod(newPod(podName(i), "n"))
				}
				w.setNode("n", noExecute("gpu"))
				w.pass(2*time.Second + outage + 20*time.Second)
				api.note(func() {
					requirePaced(t, perSecond, burst, api.left)
					late := slices.IndexFunc(api.left, func(at time.Time) bool { return !at.Before(api.back) })
					require.GreaterOrEqual(t, len(api.left)-late, 10*perSecond, "at full pace within 10 s")
					require.Greater(t, api.hung, perSecond)
				})
			})
		})
	}
}

// requirePaced fails if in any time t more pods left than burst + perSecond*t.
func requirePaced(t *testing.T, perSecond, burst int, left []time.Time) {
	t.Helper()
	for i := range left {
		for j := i; j < len(left); j++ {
			may := float64(burst) + float64(perSecond)*left[j].Sub(left[i]).Seconds()
			if float64(j-i+1) > may+1e-6 {
				require.Failf(t, "too fast", "%d pods left from %s to %s", j-i+1, left[i], left[j])
			}
		}
	}
}
