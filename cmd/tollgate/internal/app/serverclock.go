package app

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// precision is the granularity of the Date header, which is truncated: the time at the server
	// was in [Date, Date+precision).
	precision = time.Second
	// tolerance is by how much a sample may contradict the earlier ones before they are
	// discarded: clocks may drift apart over days, the server's clock may be set, or another
	// server may respond.
	tolerance = 50 * time.Millisecond
)

// serverClock is a clock.WithTicker whose Now is the estimated time of the API server. Samples leave an
// interval of up to a second. If the local time is inside, Now returns it, else the start of the
// interval, because an eviction may be late but not early. Before the first response it is the
// local clock. Timers and tickers are those of the local clock. It is safe for concurrent use.
//
// Taints have timestamps of the API server's clock, so a machine whose clock is minutes off would
// compute deadlines early or late by as much. Each response has the server's time in the Date
// header. The clock is set by these and advances with the machine's monotonic clock, so that a
// step of the local wall clock has no effect.
type serverClock struct {
	clock.WithTicker

	mutex  sync.RWMutex
	anchor *sample
}

// sample is an interval of the server's time. At the local time local, of which the monotonic
// reading counts, the server's was at least earliest.
type sample struct {
	local    time.Time
	earliest time.Time
	// latest is the upper bound of the server's time.
	latest time.Time
}

// newServerClock returns a clock that advances with local.
func newServerClock(local clock.WithTicker) *serverClock {
	return &serverClock{WithTicker: local}
}

// Now returns the time at the API server.
func (c *serverClock) Now() time.Time {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	now := c.WithTicker.Now()
	if c.anchor == nil {
		return now
	}
	passed := now.Sub(c.anchor.local)
	earliest, latest := c.anchor.earliest.Add(passed), c.anchor.latest.Add(passed)
	if now.Before(earliest) || now.After(latest) {
		return earliest
	}
	return now
}

// Since returns the time since t by the API server's clock.
func (c *serverClock) Since(t time.Time) time.Duration {
	return c.Now().Sub(t)
}

// Wrap returns a transport that sets the clock from the responses of next.
func (c *serverClock) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper{clock: c, next: next}
}

type roundTripper struct {
	clock *serverClock
	next  http.RoundTripper
}

// RoundTrip sends the request and passes the Date of the response to the clock.
func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := t.clock.WithTicker.Now()
	resp, err := t.next.RoundTrip(req)
	if err == nil {
		if date, parseErr := http.ParseTime(resp.Header.Get("Date")); parseErr == nil {
			t.clock.learn(date, sent, t.clock.WithTicker.Now())
		}
	}
	return resp, err
}

// learn adds a sample: the server's clock showed date between sent and received. It is intersected
// with the earlier sample, unless they contradict.
func (c *serverClock) learn(date, sent, received time.Time) {
	fresh := &sample{local: received, earliest: date, latest: date.Add(precision).Add(received.Sub(sent))}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	earlier := c.anchor
	c.anchor = fresh
	if earlier == nil {
		return
	}
	passed := received.Sub(earlier.local)
	earliest, latest := earlier.earliest.Add(passed), earlier.latest.Add(passed)
	if earliest.After(fresh.latest.Add(tolerance)) || date.After(latest.Add(tolerance)) {
		return // They contradict.
	}
	if earliest.After(date) {
		fresh.earliest = earliest
	}
	if latest.Before(fresh.latest) {
		fresh.latest = latest
	}
}
