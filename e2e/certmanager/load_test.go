package certmanager

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pause is between two reviews of one kind, so that cert-manager has its turn on a small
// machine.
const pause = 20 * time.Millisecond

// load asks for reviews until it is stopped: through the API server, which keeps
// connections open, and by handshakes, as of an API server that has none.
type load struct {
	running sync.WaitGroup
	stop    context.CancelFunc

	mu       sync.Mutex
	reviews  int
	serials  map[string]bool
	failures []error
}

func startLoad(t *testing.T) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{stop: stop, serials: map[string]bool{}}
	client := clientOf(t)
	l.run(ctx, func(ctx context.Context) (string, error) {
		return "", admit(ctx, client, metav1.NamespaceDefault)
	})
	l.run(ctx, func(ctx context.Context) (string, error) {
		met, err := handshake(ctx, client, "127.0.0.1")
		if err != nil {
			return "", err
		}
		return met.SerialNumber.Text(16), nil
	})
	t.Cleanup(l.end)
	return l
}

// run asks until ctx is done. A failure that comes of that is none.
func (l *load) run(ctx context.Context, ask func(context.Context) (serial string, err error)) {
	l.running.Go(func() {
		for ctx.Err() == nil {
			serial, err := ask(ctx)
			if ctx.Err() != nil {
				return
			}
			l.note(serial, err)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
}

func (l *load) note(serial string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reviews++
	if err != nil {
		l.failures = append(l.failures, err)
	}
	if serial != "" {
		l.serials[serial] = true
	}
}

// met returns an error unless a certificate was.
func (l *load) met(serial string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.serials[serial] {
		return fmt.Errorf("certificate %s has not been met", serial)
	}
	return nil
}

func (l *load) end() {
	l.stop()
	l.running.Wait()
}

// requireNoFailure ends the load.
func (l *load) requireNoFailure(t *testing.T) {
	t.Helper()
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(t, l.failures)
	require.NotZero(t, l.reviews)
	t.Logf("%d reviews and handshakes, %d certificates", l.reviews, len(l.serials))
}
