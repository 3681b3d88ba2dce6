package certs

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

var errNoCertificate = errors.New("no serving certificate yet")

// inUse holds the pair for handshakes. load is goroutine-safe; only the goroutine that
// refreshes may call adopt.
type inUse struct {
	current atomic.Pointer[pair]
	metrics *Metrics
}

func (u *inUse) load() *pair {
	return u.current.Load()
}

// adopt replaces the pair and reports whether it differs. Open connections keep the old
// one.
func (u *inUse) adopt(ctx context.Context, p *pair) bool {
	if u.load().same(p) {
		return false
	}
	u.current.Store(p)
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
