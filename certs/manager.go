package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// Another writer that reverts every write must not make this replica load the API
	// server: after a burst, watches cause at most one refresh a second.
	refreshesPerSecond = 1
	refreshBurst       = 10

	firstRetry = time.Second
	// minPause is the minimum delay between refreshes that no event caused.
	minPause = time.Second
)

var errNoCertificate = errors.New("no serving certificate yet")

// Manager manages the serving certificate. It is a Runnable of controller-runtime that
// every replica runs.
type Manager struct {
	// source updates the pair in use from the Secret or from files. It returns the time of
	// the next refresh, or the zero time if none is known.
	source func(ctx context.Context, now time.Time) (time.Time, error)
	// watch calls wake, which does not block, after changes. It returns at once; wait
	// returns when all goroutines have stopped after the end of ctx. It is nil for files:
	// certificates are renewed with a third of their lifetime left, and the kubelet takes a
	// minute to update files.
	watch    func(ctx context.Context, wake func()) (wait func(), err error)
	use      *inUse
	clock    clock.WithTicker
	recheck  time.Duration
	reporter *reporter
	// untrusted is the error of a replica whose pair no API server is known to verify.
	untrusted error
	// trouble is the error of the last refresh, or nil.
	trouble atomic.Pointer[error]
}

// New returns a Manager, or an error for a URL that cannot be parsed. It neither calls the
// API server nor reads files; Start does.
func New(o Options) (*Manager, error) {
	o.setDefaults()
	if o.URL != "" {
		u, err := url.Parse(o.URL)
		if err != nil {
			return nil, errors.New("url cannot be parsed")
		}
		o.Hosts = append([]string{u.Hostname()}, o.Hosts...)
	}
	m := &Manager{
		use:      &inUse{metrics: o.Metrics},
		clock:    o.Clock,
		recheck:  o.recheck,
		reporter: &reporter{metrics: o.Metrics, logged: map[string]string{}},
	}
	webhooks := &publisher{Options: &o, reporter: m.reporter}
	if o.Directory != "" {
		m.source, m.untrusted = (&files{publisher: webhooks, use: m.use}).refresh, errUnverified
	} else {
		own := &ownCA{publisher: webhooks, use: m.use, object: "Secret/" + o.Namespace + "/" + o.SecretName}
		m.source, m.watch, m.untrusted = own.refresh, own.watch, errNotPublished
	}
	return m, nil
}

// NeedLeaderElection returns false: every replica serves.
func (m *Manager) NeedLeaderElection() bool {
	return false
}

// TLSConfig makes c serve the certificate in use, to clients of TLS 1.2 and
// later (A10). It fits controller-runtime's webhook.Options.TLSOpts.
func (m *Manager) TLSConfig(c *tls.Config) {
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	c.GetCertificate = m.GetCertificate
}

// GetCertificate returns the certificate in use, for any server name. It never blocks. It
// returns an expired certificate too: the error of the client then is clearer than that of
// a failed handshake.
func (m *Manager) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p := m.use.load()
	if p == nil {
		return nil, errNoCertificate
	}
	return p.served, nil
}

// Ready is a healthz.Checker. It returns an error until there is an unexpired certificate
// and, with Tollgate's own CA, the existing webhook configurations hold the bundle that
// verifies it. With files, it suffices that one webhook verified it once.
func (m *Manager) Ready(*http.Request) error {
	err := m.use.check(m.clock.Now())
	if err == nil && !m.use.trusted.Load() {
		err = m.untrusted
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

// Start manages the certificate until ctx ends and returns when all its goroutines have
// stopped.
func (m *Manager) Start(ctx context.Context) error {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithName("certs"))
	woken := make(chan struct{}, 1)
	if m.watch != nil {
		stopped, err := m.watch(ctx, func() {
			select {
			case woken <- struct{}{}:
			default:
			}
		})
		if err != nil {
			return fmt.Errorf("watch certificates: %w", err)
		}
		defer stopped()
	}
	limiter := rate.NewLimiter(refreshesPerSecond, refreshBurst)
	retry := m.newRetry()
	for m.sleep(ctx, m.refresh(ctx, &retry), woken) {
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

// refresh refreshes the source and returns the delay until the next refresh.
func (m *Manager) refresh(ctx context.Context, retry *wait.Backoff) time.Duration {
	now := m.clock.Now()
	again, err := m.source(ctx, now)
	if ctx.Err() != nil {
		return 0
	}
	expiry := m.use.check(now)
	if errors.Is(expiry, errNoCertificate) {
		expiry = nil
	}
	_ = m.reporter.check(ctx, reasonExpired, "", expiry)
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

// inUse is what handshakes and probes read. Only the goroutine that refreshes writes it.
type inUse struct {
	pair atomic.Pointer[pair]
	// trusted is true if webhook configurations verify the pair. Their later changes do not
	// reset it: API servers still trust the replica, or other replicas have the same pair.
	trusted atomic.Bool
	metrics *Metrics
}

func (u *inUse) load() *pair {
	return u.pair.Load()
}

// adopt replaces the pair and reports whether it differs. Open connections keep the old
// one.
func (u *inUse) adopt(ctx context.Context, p *pair) bool {
	if u.load().same(p) {
		return false
	}
	u.pair.Store(p)
	u.metrics.valid(kindServing, p.leaf)
	log.FromContext(ctx).Info("serving certificate in use", "serial", p.leaf.SerialNumber.Text(16), "notAfter", p.leaf.NotAfter)
	return true
}

// check returns an error unless there is a pair that has not expired.
func (u *inUse) check(now time.Time) error {
	p := u.load()
	switch {
	case p == nil:
		return errNoCertificate
	case !p.usable(now):
		return fmt.Errorf("serving certificate expired at %s", p.leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}
