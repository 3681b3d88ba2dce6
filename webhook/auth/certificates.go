package auth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// Certificates say which client certificates are accepted: those of an authority in the
// file, with one of the names or organizations.
type Certificates struct {
	// CAFile holds the authorities, as PEM. It is read again when it changes.
	CAFile string
	// CommonNames and Organizations are compared whole, with the subject of the
	// certificate. One of them is enough.
	CommonNames, Organizations []string
}

// maxIntermediates is above what any API server presents. A chain costs a signature for each.
const maxIntermediates = 4

var errOtherName = errors.New("neither the common name nor an organization of the client certificate is accepted")

// certificates verifies client certificates.
type certificates struct {
	accepted    Certificates
	clock       clock.WithTicker
	serverClock clock.PassiveClock
	metrics     *CallerMetrics
	authorities atomic.Pointer[authorities]
	verified    verified[*authorities]
}

func newCertificates(o CallerOptions) (*certificates, error) {
	c := &certificates{accepted: *o.Certificates, clock: o.Clock, serverClock: o.ServerClock, metrics: o.Metrics}
	read, err := readAuthorities(o.Certificates.CAFile)
	if err != nil {
		return nil, err
	}
	c.authorities.Store(read)
	return c, nil
}

// certificateOf returns the chain that the client of r presents. That it has the key was
// shown in the handshake.
func certificateOf(r *http.Request) ([]*x509.Certificate, bool) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false
	}
	return r.TLS.PeerCertificates, true
}

func (c *certificates) identify(chain []*x509.Certificate) (grant, error) {
	by, now, shown := c.authorities.Load(), c.serverClock.Now(), digest(sha256.Sum256(chain[0].Raw))
	if known, ok := c.verified.get(shown, by, now); ok {
		return known, nil
	}
	until, err := verifyChain(chain, by, &c.accepted, now)
	if err != nil {
		return grant{}, err
	}
	found := grant{until: until, groups: []string{everyGroup}}
	c.verified.put(shown, by, found, now)
	return found, nil
}

// verifyChain returns until when a chain is good. It is pure.
func verifyChain(chain []*x509.Certificate, by *authorities, accepted *Certificates, now time.Time) (time.Time, error) {
	if len(chain) > maxIntermediates+1 {
		return time.Time{}, fmt.Errorf("the client presents %d certificates, more than %d", len(chain), maxIntermediates+1)
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		intermediates.AddCert(certificate)
	}
	found, err := chain[0].Verify(x509.VerifyOptions{
		Roots:         by.roots,
		Intermediates: intermediates,
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("verify the client certificate: %w", err)
	}
	subject := chain[0].Subject
	if !slices.Contains(accepted.CommonNames, subject.CommonName) &&
		!slices.ContainsFunc(subject.Organization, func(o string) bool { return slices.Contains(accepted.Organizations, o) }) {
		return time.Time{}, errOtherName
	}
	until := chain[0].NotAfter
	for _, certificate := range found[0] {
		if certificate.NotAfter.Before(until) {
			until = certificate.NotAfter
		}
	}
	return until, nil
}

// lookEvery is how often the file of authorities is looked at. Who replaces an authority
// lists both for longer than that.
const lookEvery = 10 * time.Second

// follow takes what is in the file into use when it changes, and keeps what it has while
// the file cannot be used.
func (c *certificates) follow(ctx context.Context) error {
	ticker := c.clock.NewTicker(lookEvery)
	defer ticker.Stop()
	broken := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		err := c.reload(ctx)
		if err != nil && !broken {
			logr.FromContextOrDiscard(ctx).Error(err, "read the authorities of client certificates again, those known stay in use",
				"file", c.accepted.CAFile)
		}
		broken = err != nil
	}
}

func (c *certificates) reload(ctx context.Context) error {
	read, err := readAuthorities(c.accepted.CAFile)
	if err == nil && read.digest == c.authorities.Load().digest {
		return nil
	}
	c.metrics.read(trustAuthorities, err)
	if err != nil {
		return err
	}
	c.authorities.Store(read)
	logr.FromContextOrDiscard(ctx).Info("authorities of client certificates in use", "file", c.accepted.CAFile, "authorities", read.count)
	return nil
}
