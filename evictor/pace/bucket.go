package pace

import (
	"math"
	"slices"
	"time"
)

// forgottenAfter is when a token counts as used that nobody has settled. An attempt is
// over long before.
const forgottenAfter = time.Minute

// bucket holds the tokens of a line. Instead of counting them it keeps when it will
// be full, so that time passes without anybody doing anything.
type bucket struct {
	interval time.Duration
	burst    int
	// full is when all tokens are there again. It is never later than burst intervals
	// from now: then there is none.
	full time.Time
	// called is how many pods were called and may take a token each.
	called int
	// out are the tokens that were taken and may come back, the oldest first.
	out []*token
}

// token is one that was taken.
type token struct {
	at time.Time
	// room is the least that the bucket lacked, as the time to fill it, from when the
	// token was taken until the next one was. It tells what would have been lost if this
	// token, or an older one, had stayed there.
	room time.Duration
}

func newBucket(limit Limit) *bucket {
	return &bucket{interval: limit.interval(), burst: limit.burst()}
}

// lack returns how long it takes until the bucket is full. A clock that was set back
// makes that no longer than it takes to fill an empty one.
func (b *bucket) lack(now time.Time) time.Duration {
	if most := now.Add(time.Duration(b.burst) * b.interval); b.full.After(most) {
		b.full = most
	}
	return max(b.full.Sub(now), 0)
}

// wait returns how long it takes until there is a token for a pod if so many others
// take one now.
func (b *bucket) wait(now time.Time, others int) time.Duration {
	return max(b.lack(now)+time.Duration(others-b.burst+1)*b.interval, 0)
}

// take takes a token, which must be there.
func (b *bucket) take(now time.Time) *token {
	for len(b.out) > 0 && now.Sub(b.out[0].at) > forgottenAfter {
		b.out = slices.Delete(b.out, 0, 1)
	}
	b.look(now)
	lack := b.lack(now) + b.interval
	b.full = now.Add(lack)
	taken := &token{at: now, room: lack}
	b.out = append(b.out, taken)
	return taken
}

// look notes how much room there is now.
func (b *bucket) look(now time.Time) {
	if n := len(b.out); n > 0 {
		b.out[n-1].room = min(b.out[n-1].room, b.lack(now))
	}
}

// settle ends what a token was taken for. One that was not used comes back, as far as
// it would still be there: what did not fit in at any time since is lost.
func (b *bucket) settle(now time.Time, taken *token, used bool) {
	at := slices.Index(b.out, taken)
	if at < 0 {
		return // the pace has changed, or it took too long
	}
	b.look(now)
	if !used {
		worth := b.interval
		for _, since := range b.out[at:] {
			worth = min(worth, since.room)
		}
		for _, since := range b.out[at:] {
			since.room -= worth
		}
		b.full = b.full.Add(-worth)
	}
	if at > 0 {
		b.out[at-1].room = min(b.out[at-1].room, taken.room)
	}
	b.out = slices.Delete(b.out, at, at+1)
}

// change gives the line another pace. As many tokens are there as before, or as there
// is room for: a new pace is not a new burst. What was taken before does not come back.
func (b *bucket) change(now time.Time, limit Limit) {
	interval, burst := limit.interval(), limit.burst()
	if b.interval == interval && b.burst == burst {
		return
	}
	tokens := min(float64(b.burst)-float64(b.lack(now))/float64(b.interval), float64(burst))
	b.interval, b.burst, b.out = interval, burst, nil
	b.full = now.Add(time.Duration(math.Ceil((float64(burst) - tokens) * float64(interval))))
}

// idle reports whether a new bucket would be the same.
func (b *bucket) idle(now time.Time) bool {
	return b.called == 0 && len(b.out) == 0 && b.lack(now) == 0
}
