package breaker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// write changes the status of p as another leader does.
func (s *store) write(change func(*v1alpha1.EvictionBreakerStatus)) {
	s.change("p", func(p *v1alpha1.EvictionPolicy) { change(p.Status.Breaker) })
}

// requests returns the number of requests.
func (s *store) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads + s.writes
}

func TestJ06ALateWriteOfAnEarlierLeaderIsRead(t *testing.T) {
	led(t, bounded(5, time.Hour), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.goes(t, 5, "p")
		r.locked(func() { r.held[uidP] = 9 })
		settle(time.Minute)
		s.write(func(b *v1alpha1.EvictionBreakerStatus) { b.Tripped, b.WriteID = nil, "another" })
		settle(freshFor + 2*time.Second)
		require.Equal(t, []types.UID{uidP}, r.released, "held pods are woken")
		require.NotNil(t, r.answer("p").HeldBy)
		require.NotNil(t, s.status("p").Breaker.Tripped, "the status has the breaker tripped again")
	})
}

func TestJ06ALateWriteOfAnEarlierLeaderIsReadWhileNoPodAsks(t *testing.T) {
	led(t, bounded(5, time.Hour), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		gone, _ := r.try(3, "p")
		require.Equal(t, 3, gone)
		settle(10 * time.Minute)
		s.write(func(b *v1alpha1.EvictionBreakerStatus) {
			b.Tripped, b.Limit, b.WriteID = new(metav1.NowMicro()), 5, "another"
		})
		settle(2 * idlePause)
		require.Nil(t, s.status("p").Breaker.Tripped, "no pod is held")
		r.goes(t, 2, "p")
	})
}

func TestJ06AReplicaThatMayHaveLostTheLeaseMakesNoRequests(t *testing.T) {
	tripped(t, func(t *testing.T, s *store, r *replica) {
		t.Helper()
		s.approve("a", pods(3))
		settle(2 * time.Second)
		r.locked(func() { r.unsure, r.held[uidP] = true, 0 })
		s.change("second", bounded(3, time.Hour))
		r.PoliciesChanged()
		settle(writePause) // A request may be in progress.
		requests := s.requests()
		for begun := time.Now(); time.Since(begun) < 10*time.Minute; {
			require.Nil(t, r.Ask(newUID(), r.policies("second"), cause).Permit)
			require.Nil(t, r.Ask(newUID(), r.policies("p"), cause).Permit)
			time.Sleep(time.Second)
		}
		require.Equal(t, requests, s.requests())
		r.locked(func() { r.unsure = false })
		settle(retryMax)
		r.goes(t, 6, "second") // Three by the limit, and three by the approval.
	})
}

func TestH05ALeaderThatStartsAfterTheClockWasSetBackHoldsForLonger(t *testing.T) {
	const window, back = time.Minute, 18 * time.Second
	led(t, bounded(5, window), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		gone, _ := r.try(5, "p")
		require.Equal(t, 5, gone)
		r.retire(t)
		r.locked(func() { r.ahead, r.held[uidP] = -back, 5 })
		settle(window / 2)
		r.lead(t)
		r.goes(t, 0, "p")
		settle(window/2 + usableFor + attemptTimeout + skew)
		require.NotNil(t, s.status("p").Breaker.Tripped, "it counts by the times in the status")
		settle(back + 5*time.Second)
		require.Empty(t, s.status("p").Breaker)
		r.goes(t, 5, "p")
	})
}

func TestH05ALeaderDoesNotHoldForLongerAfterTheClockIsSetBack(t *testing.T) {
	const window = time.Minute
	led(t, bounded(5, window), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.goes(t, 5, "p")
		r.locked(func() { r.ahead, r.held[uidP] = -time.Hour, 5 })
		settle(window - time.Second)
		require.NotNil(t, s.status("p").Breaker.Tripped)
		settle(usableFor + attemptTimeout + skew + 5*time.Second)
		require.Empty(t, s.status("p").Breaker)
		r.goes(t, 5, "p")
	})
}

func TestI04ABreakerIsReleasedByAWriteWithoutAnAnswer(t *testing.T) {
	led(t, bounded(5, time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.goes(t, 5, "p")
		r.locked(func() { r.held[uidP] = 9 })
		settle(2 * time.Minute)
		lost := 1
		s.mu.Lock()
		s.fault = func(write bool) fault {
			if write && lost > 0 {
				lost--
				return fault{lost: true}
			}
			return fault{}
		}
		s.mu.Unlock()
		r.locked(func() { r.held[uidP] = 5 })
		settle(5 * time.Second)
		require.Empty(t, s.status("p").Breaker)
		require.Equal(t, []types.UID{uidP}, r.released)
		require.Len(t, r.sentEvents(), 2, "the release has an event")
		r.goes(t, 5, "p")
	})
}
