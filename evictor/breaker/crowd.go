package breaker

import "time"

const (
	// writeTakes is how long a write takes, as a rule.
	writeTakes = 25 * time.Millisecond
	// spread is how much later each of those asks again who asked within crowdTime, and
	// longestWait bounds it, so that many who wait do not keep a machine busy.
	spread      = 500 * time.Microsecond
	crowdTime   = time.Second
	longestWait = 2 * time.Second
)

// crowd counts who asked lately and has to wait.
type crowd struct {
	since time.Time
	count int
}

// wait returns how long one more waits for what is written after a pause.
func (c *crowd) wait(now time.Time, pause time.Duration) time.Duration {
	if now.Sub(c.since) > crowdTime {
		c.since, c.count = now, 0
	}
	c.count++
	return max(pause, 0) + min(writeTakes+time.Duration(c.count)*spread, longestWait)
}
