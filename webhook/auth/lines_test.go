package auth

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
)

// budget is that of a review.
const budget = time.Second

// asks puts a question that nobody has put before, for a review in a namespace.
func asks(t *testing.T, a *Authority, namespace, key string) (took time.Duration, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(InNamespace(t.Context(), namespace), budget)
	defer cancel()
	began := time.Now()
	_, _, err = a.Authorize(ctx, may("anna", "tolerate", key))
	return time.Since(began), err
}

// answering answers each question after some time.
func answering(latency time.Duration) *cluster {
	return &cluster{answers: func(ctx context.Context, _ *authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
		select {
		case <-time.After(latency):
			return authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil
		case <-ctx.Done():
			return authorizationv1.SubjectAccessReviewStatus{}, ctx.Err()
		}
	}}
}

func TestANamespaceThatAsksTooMuchKeepsOthersFromNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		perSecond int // of one namespace
		latency   time.Duration
		// atMost is how long another one waits, and served how many of the greedy one's own are
		// answered each second, at least.
		atMost time.Duration
		served int
	}{
		"a few more than the rate":                      {60, 5 * time.Millisecond, 10 * time.Millisecond, 45},
		"many more than the rate":                       {2000, 5 * time.Millisecond, 10 * time.Millisecond, 45},
		"an API server that takes its time for answers": {2000, 500 * time.Millisecond, 550 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := answering(tt.latency)
				a := NewAuthority(c, clock.RealClock{}, AuthorityLimits{PerSecond: 50, Burst: 100})
				const seconds = 10
				var all sync.WaitGroup
				var answered atomic.Int64
				all.Go(func() {
					for i := range seconds * tt.perSecond {
						all.Go(func() {
							if _, err := asks(t, a, "greedy", fmt.Sprintf("key-%d", i)); err == nil {
								answered.Add(1)
							}
						})
						time.Sleep(time.Second / time.Duration(tt.perSecond))
					}
				})
				for i := range seconds {
					time.Sleep(time.Second)
					took, err := asks(t, a, "modest", fmt.Sprintf("other-%d", i))
					require.NoError(t, err, "after %d s", i)
					require.LessOrEqual(t, took, tt.atMost, "after %d s", i)
				}
				all.Wait()
				time.Sleep(2 * patience) // until nothing is in line
				require.GreaterOrEqual(t, answered.Load(), int64(seconds*tt.served), "it has the rest of the rate")
				require.LessOrEqual(t, c.questions(), 50*(seconds+2)+100, "the API server is not asked more than it is to be")
			})
		})
	}
}

func TestAQuestionThatWouldBeAnsweredTooLateIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := answering(0)
		a := NewAuthority(c, clock.RealClock{}, AuthorityLimits{PerSecond: 50, Burst: 100})
		var mu sync.Mutex
		var answered int
		var refused []error
		var all sync.WaitGroup
		for i := range 400 {
			all.Go(func() {
				took, err := asks(t, a, "greedy", fmt.Sprintf("key-%d", i))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					answered++
					return
				}
				refused = append(refused, err)
				if took != 0 {
					t.Errorf("refused after %s: %v", took, err)
				}
			})
		}
		all.Wait()
		require.InDelta(t, 75, answered, 2, "half of the burst, and what the rate allows within half of the budget")
		for _, err := range refused {
			var busy *BusyError
			require.ErrorAs(t, err, &busy)
			require.Equal(t, "greedy", busy.Namespace)
			require.GreaterOrEqual(t, busy.Wait, budget/2)
			require.ErrorContains(t, err, `too many questions about permissions of namespace "greedy" are in line`)
		}
		time.Sleep(patience)
		_, err := asks(t, a, "greedy", "later")
		require.NoError(t, err, "it is not held against the namespace")
	})
}

func TestNamespacesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := answering(0)
		a := NewAuthority(c, clock.RealClock{}, AuthorityLimits{PerSecond: 200, Burst: 1})
		var all sync.WaitGroup
		for i := range 10 {
			for _, namespace := range []string{"a", "b", "c", "d"} {
				all.Go(func() {
					_, err := asks(t, a, namespace, fmt.Sprintf("%s-%d", namespace, i))
					if err != nil {
						t.Errorf("%s: %v", namespace, err)
					}
				})
			}
		}
		all.Wait()
		put := map[string]int{"a": 0, "b": 0, "c": 0, "d": 0}
		for i, spec := range c.asked {
			namespace, _, _ := strings.Cut(spec.ResourceAttributes.Name, "-")
			put[namespace]++
			counts := slices.Sorted(maps.Values(put))
			// Whoever comes first has no line to wait in.
			require.LessOrEqual(t, counts[3]-counts[0], 2, "of question %d: %v", i, put)
		}
	})
}

func TestAQuestionNeverWaitsInTheLineOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := NewAuthority(answering(0), clock.RealClock{}, AuthorityLimits{PerSecond: 10, Burst: 1})
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() { _, _ = asks(t, a, "greedy", fmt.Sprintf("key-%d", i)) })
		}
		synctest.Wait()
		all.Go(func() { _, _ = asks(t, a, "greedy", "the same") })
		synctest.Wait()
		took, err := asks(t, a, "modest", "the same")
		require.NoError(t, err)
		require.LessOrEqual(t, took, 200*time.Millisecond)
		all.Wait()
		time.Sleep(patience) // until nothing is in line
	})
}

func TestQuestionsThatWereGivenUpLeaveTheirPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := answering(time.Hour)
		a := NewAuthority(c, clock.RealClock{}, unlimited)
		var all sync.WaitGroup
		for i := range 3 * atOnce {
			all.Go(func() { _, _ = asks(t, a, "greedy", fmt.Sprintf("key-%d", i)) })
		}
		all.Wait()
		time.Sleep(2 * patience)
		synctest.Wait()
		c.answers = always(authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil).answers
		decision, _, err := a.Authorize(t.Context(), may("anna", "tolerate", "gpu"))
		require.NoError(t, err)
		require.Equal(t, authorizer.DecisionAllow, decision)
	})
}
