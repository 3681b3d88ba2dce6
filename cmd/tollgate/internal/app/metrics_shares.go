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
	// sharePerSecond and shareAtOnce are the rate and burst of first token reviews from one
	// address. Four addresses at their limit leave as much to a fifth. A scraper needs one review
	// for each new token.
	sharePerSecond = 1
	shareAtOnce    = reviewsAtOnce / reviewsPerSecond
	// maxAddresses is the number of addresses in the cache.
	maxAddresses = 1024
	// shareTTL is how long an idle address stays in the cache; its share is full again by then.
	shareTTL = shareAtOnce / sharePerSecond * time.Second
)

// shares holds a rate limiter for each address. It is safe for concurrent use.
type shares struct {
	mu       sync.Mutex
	limiters *cache.LRUExpireCache
}

func newShares(now clock.PassiveClock) *shares {
	return &shares{limiters: cache.NewLRUExpireCacheWithClock(maxAddresses, now)}
}

// allow takes one review from the share of an address in the form of http.Request.RemoteAddr.
// Addresses that do not parse have one share together.
func (s *shares) allow(address string, now time.Time) bool {
	from, _ := netip.ParseAddrPort(address)
	of := from.Addr().Unmap()
	s.mu.Lock()
	defer s.mu.Unlock()
	share, ok := s.limiters.Get(of)
	if !ok {
		share = rate.NewLimiter(sharePerSecond, shareAtOnce)
	}
	s.limiters.Add(of, share, shareTTL)
	return share.(*rate.Limiter).AllowN(now, 1) //nolint:forcetypeassert // The only type in the cache.
}
