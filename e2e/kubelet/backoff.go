package kubelet

import "time"

// What a kubelet waits before it starts a container once more: nothing the first time,
// then twice as long each time, and nothing again after one that ran for long.
const (
	firstBackoff = 10 * time.Second
	maxBackoff   = 5 * time.Minute
	longRun      = 2 * maxBackoff
)

// backoff is how long a container waits after its next end.
type backoff struct{ next time.Duration }

// after returns how long to wait after a run.
func (b *backoff) after(run time.Duration) time.Duration {
	if run >= longRun {
		b.next = 0
	}
	wait := b.next
	b.next = min(max(2*wait, firstBackoff), maxBackoff)
	return wait
}
