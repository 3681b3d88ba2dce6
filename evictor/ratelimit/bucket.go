package ratelimit

import (
	"math"
	"time"
)

// bucket holds the tokens of a line. Each can be taken, or is with a pod that is on its
// way, or was used by one that left and is not there again yet. Instead of counting the
// last it keeps when all of them will be there, so that time passes without anybody
// doing anything.
type bucket struct {
	interval time.Duration
	burst    int
	// full is when all tokens that were used are there again. It is never later than
	// burst intervals from now: then all were.
	full time.Time
	// returned is by how much full was brought forward altogether by what was taken back.
	returned time.Duration
	// out is how many were taken and are not settled. With those that were used they are
	// never more than burst: of the pods that are on their way all may leave at once.
	out int
	// called is how many pods were called and may take a token each.
	called int
}

func newBucket(limit Limit) *bucket {
	return &bucket{interval: limit.interval(), burst: limit.burst()}
}

// lack returns how long it takes until no token is used. A clock that was set back makes
// that no longer than it takes to fill an empty bucket.
func (b *bucket) lack(now time.Time) time.Duration {
	if most := now.Add(time.Duration(b.burst) * b.interval); b.full.After(most) {
		b.full = most
	}
	return max(b.full.Sub(now), 0)
}

// wait returns how long it takes until there is a token for a pod if so many others take
// one now: zero if there is one. Else it is as if they, and all that are on their way,
// left now. If they take longer, so does that; and it is never more for one that leaves.
func (b *bucket) wait(now time.Time, others int) time.Duration {
	return max(b.lack(now)+time.Duration(b.out+others-b.burst+1)*b.interval, 0)
}

// take takes a token, which must be there.
func (b *bucket) take() { b.out++ }

// settle ends what a token was taken for. Only one that was used has to come again, and
// begins to only now: nobody knows when, until now, the pod left.
func (b *bucket) settle(now time.Time, used bool) {
	b.out--
	if used {
		b.full = now.Add(b.lack(now) + b.interval)
	}
}

// used is a token that was used: when it is there again, if no more is taken back than was
// until then.
type used struct {
	again    time.Time
	returned time.Duration
}

// last returns the token that was used last.
func (b *bucket) last() used { return used{b.full, b.returned} }

// takeBack takes back the use of a token. No more comes back than what is still lacking
// because of it: had it not been used, the bucket might have been full since, and nothing is
// saved up beyond that.
func (b *bucket) takeBack(now time.Time, token used) {
	since := b.returned - token.returned
	if lacking := min(token.again.Add(-since).Sub(now), b.interval); lacking > 0 {
		b.full = b.full.Add(-lacking)
		b.returned += lacking
	}
}

// change gives the line another pace. As many tokens are there as before, or as there
// is room for: a new pace is not a new burst.
func (b *bucket) change(now time.Time, limit Limit) {
	interval, burst := limit.interval(), limit.burst()
	if b.interval == interval && b.burst == burst {
		return
	}
	unused := min(float64(b.burst)-float64(b.lack(now))/float64(b.interval), float64(burst))
	b.interval, b.burst = interval, burst
	b.full = now.Add(time.Duration(math.Ceil((float64(burst) - unused) * float64(interval))))
}

// idle reports whether a new bucket would be the same.
func (b *bucket) idle(now time.Time) bool {
	return b.called == 0 && b.out == 0 && b.lack(now) == 0
}
