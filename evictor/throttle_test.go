package evictor

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// busyServer answers so many requests in a second and refuses all others.
type busyServer struct {
	mu       sync.Mutex
	capacity int
	second   int64
	answered int
	refused  int
}

func (b *busyServer) refuse(req request) error {
	if !is("patch pods")(req) && !is("delete pods")(req) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now().Unix(); now != b.second {
		b.second, b.answered = now, 0
	}
	if b.answered >= b.capacity {
		b.refused++
		return apierrors.NewTooManyRequests("too many requests, please try again later", 1)
	}
	b.answered++
	return nil
}

func TestI01(t *testing.T) {
	t.Parallel()
	t.Run("I01 answers of an API server that has too much to do slow down all workers, and nobody is dropped", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			const pods, capacity = 200, 20
			server := &busyServer{capacity: capacity}
			w.start()
			for i := range pods {
				w.setPod(newPod(podName(i), "n"))
			}
			w.api.setFaults(server.refuse, nil)
			w.setNode("n", noExecute("gpu"))
			w.pass(5 * time.Minute)
			require.Equal(t, pods, w.gone(pods))
			// Each of 400 requests that go well was refused less than twice.
			require.Less(t, server.refused, 2*2*pods)
		})
	})
	t.Run("I01 one that asks for a pause is left alone by everybody for as long", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setPod(newPod("a", "n"))
			w.api.setFaults(first(1, is("patch pods"), errBusy), nil)
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Second)
			w.setPod(newPod("b", "n"))
			w.pass(5 * time.Second)
			w.stays(podA)
			w.stays(podB)
			w.pass(2 * time.Second)
			w.leaves(podA)
			w.leaves(podB)
		})
	})
	t.Run("I03 PF3 from one attempt at a time all workers are back within 10 s", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			throttle := w.evictor.throttle
			for range 20 {
				require.True(t, throttle.enter(w.t.Context()))
				throttle.leave(true, apierrors.NewTooManyRequests("", 0))
				time.Sleep(throttlePause)
			}
			require.InDelta(t, 1, throttle.limit, 0)
			began := time.Now()
			var workers sync.WaitGroup
			for range 2 * defaultWorkers {
				workers.Go(func() {
					for throttle.full() < throttle.most {
						if throttle.enter(w.t.Context()) {
							time.Sleep(50 * time.Millisecond) // what a request takes
							throttle.leave(true, nil)
						}
					}
				})
			}
			workers.Wait()
			require.Less(t, time.Since(began), 10*time.Second)
		})
	})
}

func (t *throttle) full() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.limit
}

func TestThrottleHalvesOnceForAnswersThatCameTogether(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		throttle := newThrottle(64, w.options.Local)
		for range 64 {
			require.True(t, throttle.enter(w.t.Context()))
		}
		for range 64 {
			throttle.leave(true, apierrors.NewTooManyRequests("", 0))
		}
		require.InDelta(t, 32, throttle.limit, 0)
	})
}

// TestJ11 stops a storm of evictions by deleting what asks for them.
func TestJ11(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		const pods = 2000
		w.options.Workers = 1
		w.setPolicy(newPolicy("p", paced(1, 1)))
		w.start()
		for i := range pods {
			name := podName(i)
			w.api.store(newClaim(name, "gpu-0", nil, name))
			w.api.store(using(newPod(name, "n"), name))
		}
		rule := newRule("r", "", deviceTaint("broken"))
		w.set(rule)
		w.pass(3 * time.Second)
		before := w.gone(pods)
		require.Positive(t, before)
		require.InDelta(t, pods-before, w.value("tollgate_evictions_pending"), 0)
		w.drop(rule)
		w.api.took()
		w.pass(time.Second)
		require.Zero(t, w.value("tollgate_evictions_pending"), "all are cancelled within a second")
		w.pass(time.Hour)
		require.Equal(t, before, w.gone(pods))
		require.Zero(t, matches(w.api.took(), "delete pods"))
		require.Zero(t, w.evictor.rates.Len(), "nobody waits in a line any more")
	})
}
