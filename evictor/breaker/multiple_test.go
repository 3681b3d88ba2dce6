package breaker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/tracker"
)

const uidQ = types.UID("uid of q")

// bothTripped runs a test with two tripped breakers p and q that bind the same pods, of which 5 were evicted.
// The evictor counts 9 held pods, for both.
func bothTripped(t *testing.T, test func(t *testing.T, s *store, r *replica)) {
	t.Helper()
	led(t, bounded(5, time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		s.change("q", bounded(5, time.Minute))
		r.goes(t, 5, "p", "q")
		r.goes(t, 0, "q") // The breaker q trips as well.
		_, held := r.try(8, "p", "q")
		require.Equal(t, 8, held)
		r.locked(func() { r.held[uidP], r.held[uidQ] = 9, 9 })
		test(t, s, r)
	})
}

func TestTwoBreakersThatHoldTheSamePodsAreReleasedWhenThesePodsFit(t *testing.T) {
	bothTripped(t, func(t *testing.T, s *store, r *replica) {
		t.Helper()
		settle(10 * time.Minute)
		require.NotNil(t, s.status("p").Breaker.Tripped)
		require.NotNil(t, s.status("q").Breaker.Tripped, "the pods that p holds do not fit into q")
		require.Len(t, r.sentEvents(), 2, "each trips once")
		r.locked(func() { r.held[uidP], r.held[uidQ] = 5, 5 })
		settle(3 * time.Second)
		require.Len(t, r.sentEvents(), 4, "five pods fit into both")
		r.goes(t, 5, "p", "q")
	})
}

// Pods that have to wait are held by no breaker, until they ask again.
func TestABreakerIsNotReleasedWhilePodsWaitForAnother(t *testing.T) {
	bothTripped(t, func(t *testing.T, s *store, r *replica) {
		t.Helper()
		settle(2 * time.Minute)
		s.change("p", bounded(100, time.Minute))
		require.NotZero(t, r.Ask(newUID(), r.policies("p", "q"), cause).Wait, "the new limit of p is not read yet")
		r.locked(func() { r.held[uidP], r.held[uidQ] = 0, 0 })
		settle(2 * time.Second)
		require.NotNil(t, s.status("q").Breaker.Tripped, "pods that wait are not counted yet")
		r.locked(func() { r.held[uidQ] = 9 })
		settle(10 * time.Minute)
		require.NotNil(t, s.status("q").Breaker.Tripped)
	})
}

func TestAHoldNamesAllBreakersThatHaveToCountThePod(t *testing.T) {
	bothTripped(t, func(t *testing.T, s *store, r *replica) {
		t.Helper()
		s.change("free", bounded(5, time.Minute))
		r.goes(t, 0, "p", "free")
		of := &checks.Eviction{Reason: &decide.Reason{Taint: *cause}, Pod: &tracker.Pod{Key: tracker.Key{UID: newUID()}}}
		of.Treatment.Breakers = r.policies("free", "p", "q")
		hold := r.Keeper.Ask(checks.Now{}, of).Hold
		require.Equal(t, uidP, hold.Policy, "the first that is tripped")
		require.Equal(t, []types.UID{"uid of free", uidP, uidQ}, hold.Breakers)
	})
}

func TestABreakerIsReleasedWhileAnotherOneHoldsOtherPods(t *testing.T) {
	bothTripped(t, func(t *testing.T, s *store, r *replica) {
		t.Helper()
		s.change("r", bounded(5, time.Minute))
		r.goes(t, 5, "r")
		settle(2 * time.Minute)
		require.Contains(t, r.sentEvents()[3], "What was held fits", "no pod that it binds is held")
		if counted := s.status("r").Breaker; counted != nil {
			require.Nil(t, counted.Tripped)
		}
	})
}

// A driver can taint all of its slices at once.
func TestJ02ABreakerCountsPodsThatLeaveBecauseOfSlices(t *testing.T) {
	led(t, bounded(10, time.Hour), func(t *testing.T, _ *store, r *replica) {
		t.Helper()
		slice := &tracker.Taint{Source: tracker.Source{Kind: tracker.SourceSlice, Name: "slice"}, Key: "gpu", Effect: corev1.TaintEffectNoExecute}
		gone := 0
		for begun := time.Now(); time.Since(begun) < time.Minute; {
			answer := r.Ask(newUID(), r.policies("p"), slice)
			if answer.HeldBy != nil {
				break
			}
			if answer.Permit != nil {
				answer.Permit.Settle(true)
				gone++
			}
			time.Sleep(answer.Wait)
		}
		require.Equal(t, 10, gone)
		r.goes(t, 0, "p")
	})
}

func TestH02ABreakerCountsPodsThatLeaveBecauseOfATaintAddedLongAgo(t *testing.T) {
	led(t, bounded(10, time.Hour), func(t *testing.T, _ *store, r *replica) {
		t.Helper()
		r.locked(func() { r.standing = tracker.Taint{Key: "broken", TimeAdded: time.Now().Add(-24 * time.Hour)} })
		r.goes(t, 10, "p")
	})
}

// Pods ask again, and are held, only after the write that trips the breaker.
func TestABreakerIsNotReleasedBeforePodsAreHeldByIt(t *testing.T) {
	led(t, bounded(2, time.Hour), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		gone, _ := r.try(2, "p")
		require.Equal(t, 2, gone)
		s.mu.Lock()
		s.fault = func(write bool) fault {
			if write {
				return fault{answer: attemptTimeout - 100*time.Millisecond}
			}
			return fault{}
		}
		s.mu.Unlock()
		require.NotNil(t, r.answer("p").HeldBy)
		s.mu.Lock()
		s.fault = nil
		s.mu.Unlock()
		settle(fitsAfter - time.Second)
		require.Len(t, r.sentEvents(), 1, "the evictor may not have counted all held pods yet")
		settle(3 * time.Second)
		require.Len(t, r.sentEvents(), 2, "it counts none")
	})
}
