package breaker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// unanswered has a pod go by an attempt whose answer is lost.
func (r *replica) unanswered(t *testing.T, pod types.UID, names ...string) {
	t.Helper()
	answer := r.answerFor(pod, names...)
	require.NotNil(t, answer.Permit)
	answer.Permit.Settle(true)
}

func TestI04APolicyCountsAPodOnceInAWindow(t *testing.T) {
	led(t, bounded(3, time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		for range 5 {
			r.unanswered(t, "a", "p")
			settle(10 * time.Second)
			require.Equal(t, 1, granted(s.status("p").Breaker), "a pod that asks again is counted once")
		}
		r.unanswered(t, "b", "p")
		settle(2 * time.Second)
		require.Equal(t, 2, granted(s.status("p").Breaker), "another pod is counted")
		settle(10 * time.Second)
		r.unanswered(t, "a", "p")
		settle(2 * time.Second)
		require.Equal(t, 2, granted(s.status("p").Breaker), "it is counted once, as of its last attempt")
		r.unanswered(t, "c", "p")
		require.NotNil(t, r.answerFor("d", "p").HeldBy)
		r.unanswered(t, "a", "p")
		r.unanswered(t, "b", "p")
	})
}

func TestI04EachPolicyCountsAPodOnce(t *testing.T) {
	led(t, bounded(2, 10*time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		s.change("short", bounded(2, time.Minute))
		r.unanswered(t, "a", "p")
		r.unanswered(t, "a", "p", "short")
		settle(10 * time.Second)
		require.Equal(t, 1, granted(s.status("p").Breaker))
		require.Equal(t, 1, granted(s.status("short").Breaker), "one policy has counted the pod, and the other has not")
		settle(time.Minute)
		r.unanswered(t, "a", "p", "short")
		r.unanswered(t, "b", "short")
		require.NotNil(t, r.answerFor("c", "short").HeldBy, "the shorter window has passed, and the pod is counted again")
		require.Equal(t, 1, granted(s.status("p").Breaker))
	})
}

func TestI04AnApprovalCountsAPodOnceInAWindow(t *testing.T) {
	for name, approve := range map[string]func(*v1alpha1.EvictionApproval){"of a taint": pods(3), "of a policy": forPolicy("p", 3)} {
		t.Run(name, func(t *testing.T) {
			led(t, bounded(1, time.Minute), func(t *testing.T, s *store, r *replica) {
				t.Helper()
				r.locked(func() { r.standing, r.held[uidP] = tracker.Taint{Key: "broken", TimeAdded: time.Now()}, 1000 })
				r.goes(t, 1, "p")
				s.approve("a", approve)
				settle(2 * time.Second)
				for range 5 {
					r.unanswered(t, "a", "p")
					settle(10 * time.Second)
					require.EqualValues(t, 1, s.released("a").Released, "a pod that asks again is counted once")
				}
				r.unanswered(t, "b", "p")
				settle(12 * time.Second)
				require.EqualValues(t, 2, s.released("a").Released, "another pod is counted")
				r.unanswered(t, "a", "p")
				settle(2 * time.Second)
				require.EqualValues(t, 3, s.released("a").Released, "after the window it is counted again")
				require.NotNil(t, r.answerFor("c", "p").HeldBy)
				r.unanswered(t, "b", "p")
			})
		})
	}
}

func TestAPodIsCountedForEachAttemptThatIsNotKnownToBeCounted(t *testing.T) {
	led(t, bounded(4, time.Hour), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		require.NotNil(t, r.answerFor("a", "p").Permit, "it is never settled")
		r.unanswered(t, "a", "p")
		settle(10 * time.Second)
		require.Equal(t, 2, granted(s.status("p").Breaker))
		refused := r.answerFor("b", "p")
		refused.Permit.Settle(false)
		r.unanswered(t, "b", "p")
		settle(10 * time.Second)
		require.Equal(t, 3, granted(s.status("p").Breaker))
		r.retire(t)
		r.lead(t)
		r.unanswered(t, "a", "p")
		settle(10 * time.Second)
		require.Equal(t, 4, granted(s.status("p").Breaker), "another leader does not know which pods were counted")
	})
}

func TestTheMemoryOfCountedPodsEndsWithTheWindow(t *testing.T) {
	led(t, bounded(100, time.Minute), func(t *testing.T, _ *store, r *replica) {
		t.Helper()
		gone, _ := r.try(100, "p")
		require.Equal(t, 100, gone)
		remembered := func() int {
			r.Keeper.mu.Lock()
			defer r.Keeper.mu.Unlock()
			return len(r.ledgers[uidP].counted)
		}
		require.Equal(t, 100, remembered())
		settle(3 * time.Minute)
		require.Zero(t, remembered())
	})
}

func TestINV5APodIsCountedAsOfItsLastAttemptThatMayHaveWorked(t *testing.T) {
	led(t, bounded(1, time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.unanswered(t, "a", "p")
		for range 5 {
			time.Sleep(10 * time.Second)
			r.unanswered(t, "a", "p")
		}
		left := time.Now()
		r.locked(func() { r.held[uidP] = 1 })
		require.Equal(t, 1, granted(s.status("p").Breaker))
		var next Answer
		for next.Permit == nil {
			next = r.answerFor("b", "p")
			time.Sleep(time.Second)
		}
		require.Greater(t, time.Since(left), time.Minute, "one pod leaves within a minute")
	})
}

func TestINV5APodIsMovedToALaterGrantWhileTheBreakerHoldsOthers(t *testing.T) {
	led(t, bounded(2, time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.locked(func() { r.held[uidP] = 1000 })
		r.unanswered(t, "a", "p")
		r.unanswered(t, "b", "p")
		require.NotNil(t, r.answerFor("c", "p").HeldBy)
		settle(30 * time.Second)
		for _, pod := range []types.UID{"a", "b"} {
			r.unanswered(t, pod, "p")
		}
		breaker := s.status("p").Breaker
		require.NotNil(t, breaker.Tripped)
		require.Equal(t, 2, granted(breaker))
		for _, grant := range breaker.Granted {
			require.True(t, grant.Until.After(time.Now().Add(attemptTimeout)), "the attempts end before their grant does")
		}
	})
}

func TestINV5ACountedPodIsHeldAfterTheLimitWasLowered(t *testing.T) {
	led(t, bounded(3, time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.locked(func() { r.held[uidP] = 1000 })
		for _, pod := range []types.UID{"a", "b", "c"} {
			r.unanswered(t, pod, "p")
		}
		settle(2 * usableFor)
		s.change("p", bounded(1, time.Minute))
		require.NotNil(t, r.answerFor("a", "p").HeldBy, "more pods than one may have left")
		require.Equal(t, 3, granted(s.status("p").Breaker))
		s.change("p", bounded(3, time.Minute))
		settle(freshFor + time.Second)
		r.unanswered(t, "a", "p")
		require.Equal(t, 3, granted(s.status("p").Breaker), "it is counted once")
	})
}

// The move of a pod is written and has no answer, and another writer writes before the status is read again.
// The clock of the API server was set back, so that the grants are not in the order in which they end.
func TestINV5APodIsCountedAgainAfterAnotherWriter(t *testing.T) {
	led(t, bounded(2, time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		h := &history{}
		h.setLimit(2)
		leaves := func(pod types.UID) {
			if answer := r.answerFor(pod, "p"); answer.Permit != nil {
				h.leave(&duePod{uid: pod})
				answer.Permit.Settle(true)
			}
		}
		r.locked(func() { r.held[uidP] = 1000 })
		r.unanswered(t, "a", "p")
		settle(time.Second)
		r.locked(func() { r.ahead = -20 * time.Second })
		settle(usableFor)
		s.mu.Lock()
		s.fault = func(write bool) fault { return fault{lost: write} }
		s.mu.Unlock()
		require.NotZero(t, r.Ask("a", r.policies("p"), cause).Wait)
		synctest.Wait()
		s.write(func(b *v1alpha1.EvictionBreakerStatus) { b.WriteID = "another" })
		s.mu.Lock()
		s.fault = nil
		s.mu.Unlock()
		settle(20 * time.Second)
		for _, pod := range []types.UID{"b", "a"} {
			leaves(pod)
		}
		settle(50 * time.Second)
		leaves("c")
		excess, at := h.excess(time.Minute, 0)
		require.LessOrEqual(t, excess, 0, "too many pods left within a minute before %s", at)
	})
}

// Another writer removes what was granted while an attempt is in progress, of which no answer comes.
func TestINV5APodIsCountedAgainAfterAnotherWriterDuringItsAttempt(t *testing.T) {
	led(t, bounded(2, time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.locked(func() { r.held[uidP] = 1000 })
		inProgress := r.answerFor("a", "p")
		require.NotNil(t, inProgress.Permit)
		s.write(func(b *v1alpha1.EvictionBreakerStatus) { b.Granted, b.WriteID = nil, "another" })
		r.unanswered(t, "b", "p")
		inProgress.Permit.Settle(true)
		settle(usableFor + time.Second)
		r.unanswered(t, "a", "p")
		require.Equal(t, 2, granted(s.status("p").Breaker))
		require.NotNil(t, r.answerFor("c", "p").HeldBy, "two pods may have left since")
	})
}

// A pod that another breaker holds asks in vain, so that nothing is written for it.
func TestACountedPodThatAnotherBreakerHoldsCostsNoWrites(t *testing.T) {
	led(t, bounded(5, time.Hour), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		s.change("q", bounded(1, 10*time.Minute))
		r.unanswered(t, "a", "p")
		r.goes(t, 1, "q")
		r.locked(func() { r.held["uid of q"] = 2 })
		settle(30 * time.Second)
		s.mu.Lock()
		before := s.writes
		s.mu.Unlock()
		for range 10 {
			require.NotNil(t, r.answerFor("a", "p", "q").HeldBy)
			settle(30 * time.Second)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Equal(t, before, s.writes)
	})
}
