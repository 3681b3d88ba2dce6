package webhook

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"
)

// flightPatience is the time for one read that several wait for. Each of them waits no
// longer than its own request has.
const flightPatience = 2 * time.Second

// flights makes one read of those that are wanted at the same time. None of those who
// wait ends it for the others, and none is given what was read before they asked. It is
// safe for concurrent use.
type flights[T any] struct {
	clock clock.PassiveClock
	group singleflight.Group
}

// landed is what was read, and when the read began: what was written before counts.
type landed[T any] struct {
	value T
	asOf  time.Time
}

// read returns what was read under a key by a read that began no earlier than since. To
// wait for a read that is under way and begin another after it keeps it at one read at
// a time for each key, however many ask.
func (f *flights[T]) read(ctx context.Context, key string, since time.Time, read func(context.Context) (T, error)) (landed[T], error) {
	for {
		result := f.group.DoChan(key, func() (any, error) {
			// The request of whoever came first may be over before the read is.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flightPatience)
			defer cancel()
			got := landed[T]{asOf: f.clock.Now()}
			var err error
			got.value, err = read(ctx)
			return got, err
		})
		select {
		case <-ctx.Done():
			return landed[T]{}, fmt.Errorf("wait for what others read: %w", context.Cause(ctx))
		case r := <-result:
			if got := r.Val.(landed[T]); !got.asOf.Before(since) {
				return got, r.Err
			}
		}
	}
}
