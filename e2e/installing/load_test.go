package installing

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// load creates pods without a pause that would hide anything, until it is ended.
type load struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	reviews  int      // guarded by mu
	failures []string // guarded by mu
}

// Users that create pods, and how long each waits between two. A connection of the API
// server that is idle for long would be closed before it can fail. More of them would keep a
// small machine so busy that reviews take longer than webhooks may.
const (
	users = 4
	pace  = 50 * time.Millisecond
)

func startLoad(t *testing.T) *load {
	t.Helper()
	client := client(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	l := &load{cancel: cancel}
	for range users {
		l.done.Go(func() {
			for ctx.Err() == nil {
				err := create(ctx, client, judged())
				if ctx.Err() == nil {
					l.note(err)
				}
				time.Sleep(pace)
			}
		})
	}
	t.Cleanup(func() { l.end() })
	return l
}

func (l *load) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reviews++
	if err != nil {
		l.failures = append(l.failures, time.Now().UTC().Format(time.RFC3339Nano)+" "+err.Error())
	}
}

// end ends the load, and returns how many pods were created and what was said where one
// was not.
func (l *load) end() (int, []string) {
	l.cancel()
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reviews, l.failures
}

// requireUnharmed ends the load, and fails the test if anything of it failed for another reason than
// those that are known.
func (l *load) requireUnharmed(t *testing.T, during string, known ...string) {
	t.Helper()
	reviews, failures := l.end()
	failures = slices.DeleteFunc(failures, func(failure string) bool {
		return slices.ContainsFunc(known, func(reason string) bool { return strings.Contains(failure, reason) })
	})
	t.Logf("%s: %d pods were created, %d were not", during, reviews, len(failures))
	require.Empty(t, failures, during)
	require.Positive(t, reviews)
}
