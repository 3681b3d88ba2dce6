package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// A fight with someone who undoes every write must not load the API server:
	// after a burst, being woken leads to one refresh a second.
	refreshesPerSecond = 1
	refreshBurst       = 10

	firstRetry = time.Second
	// minPause is the least time between looks that no event asked for.
	minPause = time.Second
)

// source is where certificates come from.
type source interface {
	// refresh brings the pair in use up to date and says when to look again, or
	// the zero time if no moment is known.
	refresh(ctx context.Context, now time.Time) (time.Time, error)
	// watch calls wake, which does not block, when there may be news. It returns
	// at once; wait returns when nothing runs any more after ctx has ended.
	watch(ctx context.Context, wake func()) (wait func(), err error)
	// ready says what is missing beside a certificate. Any goroutine may ask.
	ready() error
}

// Manager keeps the serving certificate. It is a Runnable of controller-runtime
// that every replica runs.
type Manager struct {
	source   source
	use      *inUse
	clock    clock.WithTicker
	recheck  time.Duration
	reporter *reporter
	// trouble is the error of the last refresh, or nil.
	trouble atomic.Pointer[error]
}

// New returns a Manager, or an error that names what is wrong in the options.
// It neither calls the API server nor reads files; Start does.
func New(o Options) (*Manager, error) {
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("check certificate options: %w", err)
	}
	m := &Manager{
		use:      &inUse{metrics: o.Metrics},
		clock:    o.Clock,
		recheck:  o.Recheck,
		reporter: newReporter(o.Metrics),
	}
	if o.Directory != "" {
		m.source = newFiles(&o, m.use, m.reporter)
		return m, nil
	}
	own, err := newOwnCA(&o, m.use, m.reporter)
	if err != nil {
		return nil, fmt.Errorf("check certificate options: %w", err)
	}
	m.source = own
	return m, nil
}

// NeedLeaderElection is false: each replica serves.
func (m *Manager) NeedLeaderElection() bool {
	return false
}

// TLSConfig makes c serve the certificate in use, to clients of TLS 1.2 and
// later (A10). It fits controller-runtime's webhook.Options.TLSOpts.
func (m *Manager) TLSConfig(c *tls.Config) {
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	c.GetCertificate = m.GetCertificate
}

// GetCertificate returns the certificate in use, whatever name the client asks
// for. It never waits. An expired one is returned for the client to refuse: the
// reason is clearer there than that of a broken handshake.
func (m *Manager) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p := m.use.load()
	if p == nil {
		return nil, errNoCertificate
	}
	return p.served, nil
}

// Ready is a healthz.Checker. It returns an error until there is a certificate
// that has not expired and, with a CA of our own, the webhook configurations
// that exist hold the bundle that verifies it. With files it is enough that some
// webhook verified it once.
func (m *Manager) Ready(*http.Request) error {
	err := m.use.check(m.clock.Now())
	if err == nil {
		err = m.source.ready()
	}
	trouble := m.trouble.Load()
	switch {
	case err == nil || trouble == nil:
		return err
	case errors.Is(*trouble, err): // and says more of it
		return *trouble
	}
	return errors.Join(err, *trouble)
}

// Start keeps the certificate until ctx ends and returns when everything that
// it started has stopped.
func (m *Manager) Start(ctx context.Context) error {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithName("certs"))
	woken := make(chan struct{}, 1)
	stopped, err := m.source.watch(ctx, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return fmt.Errorf("watch certificates: %w", err)
	}
	defer stopped()

	limiter := rate.NewLimiter(refreshesPerSecond, refreshBurst)
	retry := m.newRetry()
	for ctx.Err() == nil {
		pause := m.refresh(ctx, &retry)
		if !m.sleep(ctx, pause, woken) {
			break
		}
		now := m.clock.Now()
		if !m.sleep(ctx, limiter.ReserveN(now, 1).DelayFrom(now), nil) {
			break
		}
	}
	return nil
}

func (m *Manager) newRetry() wait.Backoff {
	return wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.1, Steps: 16, Cap: m.recheck}
}

// refresh returns how long to wait before the next.
func (m *Manager) refresh(ctx context.Context, retry *wait.Backoff) time.Duration {
	now := m.clock.Now()
	again, err := m.source.refresh(ctx, now)
	if ctx.Err() != nil {
		return 0
	}
	if expiry := m.use.check(now); expiry != nil && m.use.load() != nil {
		m.reporter.report(ctx, reasonExpired, "", expiry)
	} else {
		m.reporter.well(ctx, "", reasonExpired)
	}
	if err != nil {
		m.trouble.Store(&err)
		return retry.Step()
	}
	m.trouble.Store(nil)
	*retry = m.newRetry()
	pause := m.recheck
	if !again.IsZero() {
		pause = min(pause, again.Sub(now))
	}
	return max(pause, minPause)
}

// sleep returns false if ctx ended.
func (m *Manager) sleep(ctx context.Context, d time.Duration, woken <-chan struct{}) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := m.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-woken:
	case <-timer.C():
	}
	return true
}
