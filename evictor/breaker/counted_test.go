package breaker

import (
	"testing"
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
		require.Equal(t, 3, granted(s.status("p").Breaker), "after the window it is counted again")
		require.NotNil(t, r.answerFor("c", "p").HeldBy)
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
			term := r.term.Load()
			term.mu.Lock()
			defer term.mu.Unlock()
			return len(term.ledgers[uidP].countedAt)
		}
		require.Equal(t, 100, remembered())
		settle(3 * time.Minute)
		require.Zero(t, remembered())
	})
}
