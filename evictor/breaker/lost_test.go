package breaker

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "tollgate.dev"}, "p", errors.New("no"))
}

func TestI02WritesThatFailForLongAreNotHeaped(t *testing.T) {
	tests := map[string]struct {
		err  error
		most int
	}{
		"refused":     {forbidden(), 0},
		"who knows":   {apierrors.NewInternalError(errLost), maxLost},
		"answer lost": {errLost, maxLost},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			tripped(t, func(t *testing.T, s *store, r *replica) {
				t.Helper()
				s.change("second", bounded(3, time.Hour))
				r.PoliciesChanged()
				s.approve("a", pods(3))
				settle(2 * time.Second)
				s.mu.Lock()
				s.fault = func(write bool) fault { return fault{refused: write, err: test.err} }
				s.mu.Unlock()
				for begun := time.Now(); time.Since(begun) < 2*maxLost*retryMax; {
					require.Nil(t, r.Ask(newUID(), r.policies("second"), cause).Permit)
					require.Nil(t, r.Ask(newUID(), r.policies("p"), cause).Permit)
					time.Sleep(time.Second)
				}
				r.Keeper.mu.Lock()
				require.Len(t, r.ledgers["uid of second"].lostWrites, test.most)
				approvals := 0
				for _, l := range r.ledgers {
					if l.approval {
						approvals++
						require.Len(t, l.lostWrites, test.most)
					}
				}
				require.Equal(t, 1, approvals)
				r.Keeper.mu.Unlock()
				s.mu.Lock()
				s.fault = nil
				s.mu.Unlock()
				settle(retryMax + time.Second)
				r.goes(t, 6, "second") // Three by the limit, and three by the approval.
				r.goes(t, 0, "p")
			})
		})
	}
}

// A write without an answer has the policy read before each plan, also while there is nothing to write.
func TestI02PodsThatWaitAfterALostWriteCostFewReads(t *testing.T) {
	led(t, bounded(2, time.Hour), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		require.NotNil(t, r.answer("p").Permit, "this attempt may give its room back")
		s.mu.Lock()
		s.fault = func(write bool) fault { return fault{refused: write} }
		s.mu.Unlock()
		require.NotZero(t, r.Ask(newUID(), r.policies("p"), cause).Wait)
		settle(time.Second)
		s.change("p", bounded(1, time.Hour)) // The second pod has no room any more.
		s.mu.Lock()
		s.fault = nil
		s.mu.Unlock()
		before := s.requests()
		const pause = 5 * time.Second
		for begun := time.Now(); time.Since(begun) < pause; {
			wait := r.Ask(newUID(), r.policies("p"), cause).Wait
			require.NotZero(t, wait)
			time.Sleep(wait)
		}
		require.LessOrEqual(t, s.requests()-before, int(pause/writePause)+2)
	})
}

// Pods that ask do not have an API server that fails asked more often.
func TestI02PodsThatWaitWhileWritesFailCostFewRequests(t *testing.T) {
	led(t, bounded(2, time.Hour), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		settle(time.Second)
		s.mu.Lock()
		s.fault = func(bool) fault { return fault{refused: true} }
		s.mu.Unlock()
		before := s.requests()
		const outage = time.Minute
		for begun := time.Now(); time.Since(begun) < outage; time.Sleep(20 * time.Millisecond) {
			require.NotZero(t, r.Ask(newUID(), r.policies("p"), cause).Wait)
		}
		doubled := 7 // From retryBase to retryMax.
		require.LessOrEqual(t, s.requests()-before, 2*(doubled+int(outage/retryMax)))
		s.mu.Lock()
		s.fault = nil
		s.mu.Unlock()
		settle(retryMax + time.Second)
		r.goes(t, 2, "p")
	})
}

func TestTheLedgerOfAPolicyThatIsGoneIsDropped(t *testing.T) {
	led(t, bounded(5, time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		gone, _ := r.try(1, "p")
		require.Equal(t, 1, gone)
		settle(10 * time.Minute) // nothing is left to do about it
		s.remove("p")
		r.PoliciesChanged()
		settle(time.Second)
		r.Keeper.mu.Lock()
		defer r.Keeper.mu.Unlock()
		require.Empty(t, r.ledgers)
	})
}
