package evictor

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
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
			for range 2 * DefaultWorkers {
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
		require.Zero(t, w.evictor.lines.Len(), "nobody waits in a line any more")
	})
}

// TestPromptAnswers asks a server that is busy through the client that is used for it.
func TestPromptAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		contentType, body string
		after             string
		want              int
		failure           Failure
	}{
		"I01 priority and fairness, which speaks plain text": {"text/plain; charset=utf-8", "Too many requests, please try again later.", "3", 3, Throttled},
		"I01 an answer without a header":                     {"text/plain", "busy", "", 0, Throttled},
		"G18 a budget that is still being counted": {
			"application/json", string(budgetStatus(t)), "10", 10, BudgetExceeded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
				mu.Lock()
				asked++
				mu.Unlock()
				answer.Header().Set("Content-Type", test.contentType)
				if test.after != "" {
					answer.Header().Set("Retry-After", test.after)
				}
				answer.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(answer, test.body)
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			config.Wrap(PromptAnswers)
			client, err := kubernetes.NewForConfig(config)
			require.NoError(t, err)
			_, err = (&apiEvictor{pods: client.CoreV1()}).evict(t.Context(), order{pod: trackedPod(nil), method: methodEvict})
			require.Equal(t, test.failure, classify(err), "%v", err)
			after, _ := apierrors.SuggestsClientDelay(err)
			require.Equal(t, test.want, after)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, 1, asked, "client-go does not ask again by itself")
		})
	}
}

func budgetStatus(t *testing.T) []byte {
	t.Helper()
	return fmt.Appendf(nil, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,`+
		`"message":"Cannot evict pod as it would violate the pod's disruption budget.",`+
		`"details":{"retryAfterSeconds":10,"causes":[{"reason":%q,"message":"The disruption budget web is still being processed by the server."}]}}`,
		policyv1.DisruptionBudgetCause)
}
