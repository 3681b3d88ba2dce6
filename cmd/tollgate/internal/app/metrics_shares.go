package app

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

const (
	// sharePerSecond and shareAtOnce bound the reviews of tokens from one address that were not
	// good before. Four addresses that use all of that leave as much to a fifth. A scraper
	// needs one for each new token.
	sharePerSecond = 1
	shareAtOnce    = reviewsAtOnce / reviewsPerSecond
	// shared is the number of addresses that are remembered.
	shared = 1024
	// whole is for how long an address is remembered, by when its share is whole again.
	whole = shareAtOnce / sharePerSecond * time.Second
)

// shares are the rates of single addresses. It is safe for concurrent use.
type shares struct {
	mu sync.Mutex
	of *cache.LRUExpireCache
}

func newShares(now clock.PassiveClock) *shares {
	return &shares{of: cache.NewLRUExpireCacheWithClock(shared, now)}
}

// allow takes one review out of the share of an address, which is as in http.Request's
// RemoteAddr. Those that are none have one share together.
func (s *shares) allow(address string, now time.Time) bool {
	from, _ := netip.ParseAddrPort(address)
	of := from.Addr().Unmap()
	s.mu.Lock()
	defer s.mu.Unlock()
	share, ok := s.of.Get(of)
	if !ok {
		share = rate.NewLimiter(sharePerSecond, shareAtOnce)
	}
	s.of.Add(of, share, whole)
	return share.(*rate.Limiter).AllowN(now, 1) //nolint:forcetypeassert // Nothing else is in there.
}
