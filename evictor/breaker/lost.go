package breaker

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// mostLost bounds how many writes are remembered of which nobody knows whether they went
// through. If one that was forgotten did, it is taken for somebody else's: what it
// granted counts as gone.
const mostLost = 32

// uncertain reports whether a write that failed may go through all the same. An answer
// with a code between 400 and 499 says that it was refused, but for 408: that it took
// too long.
func uncertain(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // The answer was lost.
	}
	code := status.Status().Code
	return code < http.StatusBadRequest || code >= http.StatusInternalServerError || code == http.StatusRequestTimeout
}

// remember returns the lost writes with one more, and without the oldest if they are too
// many.
func remember[T any](lost []T, one T) []T {
	lost = append(lost, one)
	if surplus := len(lost) - mostLost; surplus > 0 {
		lost = append([]T(nil), lost[surplus:]...)
	}
	return lost
}

// failed notes that a write failed.
func (b *breaker) failed(p *plan, err error) {
	b.stale = true
	if uncertain(err) {
		b.lost = remember(b.lost, *p)
	}
}

// failed notes that a write failed.
func (r *reservation) failed(p *releasing, err error) {
	r.stale = true
	if uncertain(err) {
		r.lost = remember(r.lost, *p)
	}
}
