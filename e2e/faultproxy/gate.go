package faultproxy

import (
	"io"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// gates hold back what watches deliver.
type gates struct {
	mutex sync.Mutex // guards what follows
	held  []*gate
	// changed is closed and made anew when held changes.
	changed chan struct{}
}

// gate holds back the watches that match: for ever, or what comes by some time.
type gate struct {
	match  Match
	frozen bool
	lag    time.Duration
}

// Freeze keeps the watches that match, also those that begin meanwhile, from
// delivering anything, until thaw is called or Clear is. They stay open. What
// gathers is then delivered; to lose it, call Disconnect first.
func (p *Proxy) Freeze(match Match) (thaw func()) {
	return p.gates.add(&gate{match: match, frozen: true})
}

// Lag makes the watches that match deliver everything later by some time, until end
// is called or Clear is.
func (p *Proxy) Lag(match Match, by time.Duration) (end func()) {
	return p.gates.add(&gate{match: match, lag: by})
}

func (g *gates) add(one *gate) (remove func()) {
	g.change(func(held []*gate) []*gate { return append(held, one) })
	return func() {
		g.change(func(held []*gate) []*gate {
			return slices.DeleteFunc(held, func(other *gate) bool { return other == one })
		})
	}
}

func (g *gates) clear() {
	g.change(func([]*gate) []*gate { return nil })
}

func (g *gates) change(edit func([]*gate) []*gate) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.held = edit(g.held)
	if g.changed != nil {
		close(g.changed)
	}
	g.changed = make(chan struct{})
}

// state returns whether a watch is frozen, by how much it lags, and what is closed
// when that is no longer so.
func (g *gates) state(info *request.RequestInfo) (frozen bool, lag time.Duration, changed <-chan struct{}) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	for _, one := range g.held {
		if one.match.selects(info) {
			frozen = frozen || one.frozen
			lag = max(lag, one.lag)
		}
	}
	return frozen, lag, g.changed
}

// stream returns a body that delivers when the gates let it, until the client has
// gone. It reads on meanwhile: the API server closes a watch that is not read.
func (g *gates) stream(info *request.RequestInfo, body io.ReadCloser, gone <-chan struct{}) io.ReadCloser {
	s := &stream{gates: g, info: info, ReadCloser: body, gone: gone, arrived: make(chan struct{}, 1)}
	go s.gather()
	return s
}

// stream is the body of a watch.
type stream struct {
	io.ReadCloser

	gates *gates
	info  *request.RequestInfo
	gone  <-chan struct{}
	// arrived is signalled when there is more in pending.
	arrived chan struct{}

	mutex   sync.Mutex // guards what follows
	pending []chunk
}

// chunk is what came at one time: bytes, or the end.
type chunk struct {
	at    time.Time
	bytes []byte
	err   error
}

func (s *stream) gather() {
	for {
		buffer := make([]byte, 16<<10)
		n, err := s.ReadCloser.Read(buffer)
		s.mutex.Lock()
		s.pending = append(s.pending, chunk{at: time.Now(), bytes: buffer[:n], err: err})
		s.mutex.Unlock()
		select {
		case s.arrived <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (s *stream) Read(into []byte) (int, error) {
	for {
		n, wait, err := s.next(into)
		if n > 0 || err != nil {
			return n, err
		}
		if !wait.over(s.gone, s.arrived) {
			return 0, io.ErrClosedPipe
		}
	}
}

// patience says what may let a watch go on.
type patience struct {
	changed <-chan struct{}
	lag     time.Duration
}

// over waits, and reports whether the client still does.
func (p patience) over(gone, arrived <-chan struct{}) bool {
	var due <-chan time.Time
	if p.lag > 0 {
		timer := time.NewTimer(p.lag)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-gone:
		return false
	case <-arrived:
	case <-p.changed:
	case <-due:
	}
	return true
}

// next takes what may be delivered now, or says what to wait for.
func (s *stream) next(into []byte) (n int, wait patience, err error) {
	// Locked first: what arrives once a watch is frozen must not meet a state from before.
	s.mutex.Lock()
	defer s.mutex.Unlock()
	frozen, lag, changed := s.gates.state(s.info)
	wait.changed = changed
	if frozen || len(s.pending) == 0 {
		return 0, wait, nil
	}
	if wait.lag = time.Until(s.pending[0].at.Add(lag)); wait.lag > 0 {
		return 0, wait, nil
	}
	wait.lag = 1 // there may be more at once
	n, err = s.take(into)
	return n, wait, err
}

// take takes from the first chunk. The caller holds the mutex.
func (s *stream) take(into []byte) (int, error) {
	first := &s.pending[0]
	n := copy(into, first.bytes)
	first.bytes = first.bytes[n:]
	if len(first.bytes) > 0 {
		return n, nil
	}
	err := first.err
	if err == nil {
		s.pending = s.pending[1:]
	}
	return n, err
}
