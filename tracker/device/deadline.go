package device

import (
	"math"
	"time"
)

// resolution is how finely the API stores times. It cuts the rest off, so that the
// instant for which a stored time stands lies up to this much later.
const resolution = time.Second

// longest is the longest toleration that can be counted with. A longer one is for
// ever: Kubernetes' own evictor counts past the end of its numbers there and evicts
// at once (DE-31).
const longest = math.MaxInt64 / int64(time.Second)

// Deadline returns until when a taint that counts from added is tolerated for some
// seconds; false means for ever. Zero and less is not at all (DE-25). The seconds
// count from the end of the second in which the taint was added: up to a second
// late, never early.
func Deadline(added time.Time, seconds int64) (time.Time, bool) {
	switch {
	case seconds > longest:
		return time.Time{}, false
	case seconds <= 0:
		return added, true
	}
	return added.Truncate(resolution).Add(time.Duration(seconds) * time.Second).Add(resolution), true
}
