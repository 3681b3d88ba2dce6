package webhook

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

const (
	// maxBodyBytes bounds a review: two objects of at most 3 MiB each, and the
	// fields around them. It is controller-runtime's bound too.
	maxBodyBytes = 7 << 20
	// smallBodyBytes is above the size of an ordinary review. Larger ones may
	// only take a part of the budget, so that they never crowd these out.
	smallBodyBytes = 256 << 10
	// bodyTimeout bounds how long a body may take to arrive, whatever is left of the budget.
	bodyTimeout = 10 * time.Second
)

// refusal is why a request is refused before a verdict.
type refusal struct {
	status int
	text   string
}

var (
	errBodyTooLarge = &refusal{http.StatusRequestEntityTooLarge, "the body is larger than 7 MiB"}
	errBodyEmpty    = &refusal{http.StatusBadRequest, "the body is empty"}
	errBodyUnread   = &refusal{http.StatusBadRequest, "the body could not be read"}
	errBusy         = &refusal{http.StatusTooManyRequests, "too many bytes of reviews are being read, try again"}
	// errBodyLate has the status of a verdict that comes too late: the time of the review is over.
	errBodyLate = &refusal{http.StatusInternalServerError, "the body did not arrive in time"}
)

// Bodies bounds the memory of the bodies that are being read and judged at the
// same time. It never waits: a caller that gets no room is told so, because an
// API server that waits is worse off than one that tries again. It is safe for
// concurrent use.
type Bodies struct {
	limit int64
	used  atomic.Int64
}

// NewBodies returns a bound of limit bytes.
func NewBodies(limit int64) *Bodies {
	return &Bodies{limit: limit}
}

// take reserves n bytes and reports whether there was room. Large bodies leave a
// quarter of the room to small ones.
func (b *Bodies) take(n int64) bool {
	limit := b.limit
	if n > smallBodyBytes {
		limit -= limit / 4
	}
	for {
		used := b.used.Load()
		if used+n > limit {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// room is the share of one body in Bodies, to be released when the body is no longer used.
type room struct {
	bodies *Bodies
	size   int64
}

// release gives the room back. Further calls do nothing.
func (r *room) release() {
	if r.size > 0 {
		r.bodies.used.Add(-r.size)
		r.size = 0
	}
}

// readBody reads the body of r within bodies and returns it with the room that it takes.
// deadline is when the body must have arrived, and buffer gives the memory for one of known length.
func readBody(w http.ResponseWriter, r *http.Request, bodies *Bodies, deadline time.Time, buffer func(int) []byte) ([]byte, room, *refusal) {
	if r.ContentLength > maxBodyBytes {
		return nil, room{}, errBodyTooLarge
	}
	if r.ContentLength == 0 {
		return nil, room{}, errBodyEmpty
	}
	// A body of unknown length is charged with the most that it may have.
	size := int64(maxBodyBytes)
	if r.ContentLength > 0 {
		size = r.ContentLength
	}
	if !bodies.take(size) {
		return nil, room{}, errBusy
	}
	taken := room{bodies: bodies, size: size}
	// A server without deadlines (a recorder in a test) still bounds the size.
	_ = http.NewResponseController(w).SetReadDeadline(deadline)
	from := http.MaxBytesReader(w, r.Body, maxBodyBytes)
	var body []byte
	var err error
	if r.ContentLength > 0 {
		body = buffer(int(size))
		_, err = io.ReadFull(from, body)
	} else {
		body, err = io.ReadAll(from)
	}
	var refused *refusal
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		refused = errBodyTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		refused = errBodyLate
	case err != nil:
		refused = errBodyUnread
	case len(body) == 0:
		refused = errBodyEmpty
	default:
		return body, taken, nil
	}
	taken.release()
	return nil, room{}, refused
}
