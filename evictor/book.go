package evictor

import (
	"sync"
	"time"

	"github.com/tollgate-dev/tollgate/tracker"
)

// entry is an eviction that is decided and not done.
type entry struct {
	// at is the deadline, and source the kind of object that sets it.
	at     time.Time
	source tracker.SourceKind
	// failure is why the last attempt failed; failures counts attempts in a row.
	failure  Failure
	failures int
	// unmarkable counts refusals of the condition. At markTries it is left out.
	unmarkable int
	// sent is true when a deletion was asked for and may have been done, although
	// no answer said so.
	sent bool
	// announced is the failure that an event told of.
	announced Failure
}

// markTries is how often the DisruptionTarget condition may be refused before
// the pod is deleted without it (I05).
const markTries = 3

// recoveryPause is the least time between two recoveries. It bounds what an API
// server that fails every other request costs.
const recoveryPause = 5 * time.Second

// book holds the evictions that are decided and not done. It is what metrics and
// events are made from; decisions do not depend on it.
type book struct {
	metrics *Metrics

	mu        sync.Mutex
	entries   map[tracker.Key]*entry
	recovered time.Time
}

func newBook(metrics *Metrics) *book {
	return &book{metrics: metrics, entries: map[tracker.Key]*entry{}}
}

// plan enters an eviction, or the new deadline of one.
func (b *book) plan(key tracker.Key, source tracker.SourceKind, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[key]
	if !ok {
		e = &entry{}
		b.entries[key] = e
		b.metrics.pending.WithLabelValues(string(source)).Inc()
	} else if e.source != source {
		b.metrics.pending.WithLabelValues(string(e.source)).Dec()
		b.metrics.pending.WithLabelValues(string(source)).Inc()
	}
	e.at, e.source = at, source
}

// canMark reports whether the condition should still be tried.
func (b *book) canMark(key tracker.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[key]
	return !ok || e.unmarkable < markTries
}

// fail enters a failed attempt and returns the entry as it is then.
func (b *book) fail(key tracker.Key, failure Failure, done attempt) entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[key]
	if !ok {
		return entry{failure: failure, failures: 1}
	}
	e.failure = failure
	e.failures++
	e.sent = e.sent || (done.sent && failure.Ambiguous())
	if done.marking && !failure.transient() {
		e.unmarkable++
	}
	return *e
}

// announce reports whether the failure of key is news, and remembers it.
func (b *book) announce(key tracker.Key, failure Failure) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[key]
	if !ok || e.announced == failure {
		return false
	}
	e.announced = failure
	return true
}

// close takes an eviction out; false means that there is none.
func (b *book) close(key tracker.Key) (entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[key]
	if !ok {
		return entry{}, false
	}
	delete(b.entries, key)
	b.metrics.pending.WithLabelValues(string(e.source)).Dec()
	return *e, true
}

// recover is called when a request went well. It returns the evictions that wait
// because of a failure of the API server as a whole: there is no reason to let
// them wait any longer.
func (b *book) recover(now time.Time) []tracker.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.recovered) < recoveryPause {
		return nil
	}
	b.recovered = now
	var keys []tracker.Key
	for key, e := range b.entries {
		if e.failure.transient() {
			e.failure = NoFailure
			keys = append(keys, key)
		}
	}
	return keys
}
