package breaker

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

// slowClock is a clock whose next reading arrives after a delay, as that of a goroutine that waits for
// the processor or for a mutex.
type slowClock struct {
	clock.RealClock

	delay atomic.Int64
}

func (c *slowClock) Now() time.Time {
	now := time.Now()
	if d := c.delay.Swap(0); d > 0 {
		time.Sleep(time.Duration(d))
	}
	return now
}

// The room of a reservation is given back while a pod waits that asked before the reservation expired.
func TestINV5RoomThatIsGivenBackIsNotHandedOutToAPodThatAskedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.change("p", bounded(64*3, time.Hour)) // It grants three pods at least.
		r, local := newReplica(s), &slowClock{}
		r.options.Local = local
		r.lead(t)
		gone, _ := r.try(1, "p")
		from := time.Now()
		s.mu.Lock()
		s.fault = func(write bool) fault {
			if write {
				return fault{delay: 2500 * time.Millisecond}
			}
			return fault{}
		}
		s.mu.Unlock()
		time.Sleep(time.Until(from.Add(usableFor - 200*time.Millisecond)))
		local.delay.Store(int64(1900 * time.Millisecond))
		permits := []*Permit{r.Ask(newUID(), r.policies("p"), cause).Permit, r.Ask(newUID(), r.policies("p"), cause).Permit}
		for _, permit := range permits {
			if permit != nil {
				permit.Settle(true)
				gone++
			}
		}
		settle(20 * time.Second)
		require.Equal(t, gone, granted(s.status("p").Breaker), "each pod that may have been evicted is counted")
		r.retire(t)
	})
}
