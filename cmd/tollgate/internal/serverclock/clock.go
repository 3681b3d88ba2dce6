// Package serverclock tells the time of the API server.
//
// Taints are stamped and judged by the API server's clock, so a deadline that
// is read on a machine whose clock is minutes off would be early or late by as
// much. Every answer of the API server carries its time in the Date header. The
// clock learns from these and then counts on with the machine's monotonic
// clock, so that a step of the local wall clock moves nothing.
package serverclock

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// precision is the granularity of the Date header, which is cut off, not
	// rounded: the time at the server was in [Date, Date+precision).
	precision = time.Second
	// tolerance is by how much a sample may contradict what is known before what
	// is known is given up: clocks that drift apart over days, a server whose
	// clock was set, or another server.
	tolerance = 50 * time.Millisecond
)

// Clock is a clock.WithTicker whose Now is the API server's time, as far as it
// is known. The answers leave room of up to a second. Within it the local clock
// is believed; when it points elsewhere, the earliest time is, because an
// eviction may be late but not early. Before the first answer it is the local
// clock. Timers and tickers are those of the local clock. It is safe for
// concurrent use.
type Clock struct {
	clock.WithTicker

	mutex  sync.RWMutex
	anchor *sample
}

// sample is what is known of the server's time. At the local time local, whose
// monotonic reading is what counts, it was at least earliest.
type sample struct {
	local    time.Time
	earliest time.Time
	// latest bounds the time at the server from above.
	latest time.Time
}

// New returns a Clock that counts with local.
func New(local clock.WithTicker) *Clock {
	return &Clock{WithTicker: local}
}

// Now returns the time at the API server.
func (c *Clock) Now() time.Time {
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

// Since returns the time at the API server that has passed since t.
func (c *Clock) Since(t time.Time) time.Duration {
	return c.Now().Sub(t)
}

// Wrap returns a transport that learns from the answers of next.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper{clock: c, next: next}
}

type roundTripper struct {
	clock *Clock
	next  http.RoundTripper
}

// RoundTrip sends the request and learns from its answer.
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

// learn takes in that the server's clock showed date at some moment between sent
// and received.
func (c *Clock) learn(date, sent, received time.Time) {
	fresh := &sample{local: received, earliest: date, latest: date.Add(precision).Add(received.Sub(sent))}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.anchor = combine(c.anchor, fresh)
}

// combine narrows fresh by what was known before, as long as both can be true.
func combine(known, fresh *sample) *sample {
	if known == nil {
		return fresh
	}
	passed := fresh.local.Sub(known.local)
	earliest, latest := known.earliest.Add(passed), known.latest.Add(passed)
	if earliest.After(fresh.latest.Add(tolerance)) || fresh.earliest.After(latest.Add(tolerance)) {
		return fresh
	}
	if earliest.After(fresh.earliest) {
		fresh.earliest = earliest
	}
	if latest.Before(fresh.latest) {
		fresh.latest = latest
	}
	return fresh
}
