package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// filesDelay is how long the CA of another issuer must be in the webhook configurations
// before its certificate is used: API servers learn of it through a watch, and kubelets
// update files of other replicas within minutes anyway.
const filesDelay = 30 * time.Second

var (
	errUntrusted  = errors.New("certificate cannot be verified yet by the caBundle of a webhook that verifies the one in use, which stays")
	errUnverified = errors.New("serving certificate has not been found to be verified by the caBundle of any webhook")
)

// guard delays a certificate that the API server would refuse while it accepts the current
// one (F04). The issuer of certificates and the injector of the CA are not synchronized,
// and the files may arrive first.
type guard struct {
	// targets are only read.
	targets  *publisher
	reporter *reporter
	recheck  time.Duration
	// next is the pair that the bundles verify, and from the time since which they do.
	next *pair
	from time.Time
}

// until returns the time at which next may replace current, zero for now. The caller
// retries after an error.
func (g *guard) until(ctx context.Context, current, next *pair, now time.Time) (time.Time, error) {
	if len(g.targets.targets) == 0 || !current.usable(now) || current.sameIssuer(next) || !now.Before(lastMoment(current, g.recheck)) {
		return time.Time{}, nil
	}
	found := g.targets.read(ctx)
	if apierrors.IsForbidden(found.err) {
		// Without the permission to read the bundles, the administrator is responsible for
		// them.
		return time.Time{}, nil
	}
	if found.err != nil {
		return time.Time{}, found.err
	}
	lost, trusted := found.compare(current, next, now)
	switch {
	case lost:
		g.next = nil
		g.reporter.report(ctx, reasonFilesUntrusted, "", errUntrusted)
		return time.Time{}, errUntrusted
	case !trusted:
		// Some webhooks do not verify the current pair, so it is not worth keeping.
		return time.Time{}, nil
	}
	if !g.next.same(next) {
		g.next, g.from = next, now
	}
	until := earlier(g.from.Add(filesDelay), lastMoment(current, g.recheck))
	if !now.Before(until) {
		return time.Time{}, nil
	}
	return until, nil
}

// verify returns an error if no webhook verifies p, though one has a caBundle. A webhook
// without one relies on the system roots of the API server, or waits for an injector. The
// error names a caBundle that cannot be decoded.
func (g *guard) verify(ctx context.Context, p *pair, now time.Time) error {
	found := g.targets.read(ctx)
	if found.err != nil && !apierrors.IsForbidden(found.err) {
		return found.err
	}
	some, why := false, errUnverified
	for _, c := range found.configurations {
		if c == nil {
			continue
		}
		for _, h := range c.hooks {
			if len(h.client.CABundle) == 0 {
				return nil
			}
			cas, err := parseCertificates(h.client.CABundle)
			if err == nil && p.signedBy(cas, now) {
				return nil
			}
			if err != nil {
				why = fmt.Errorf("%w: caBundle of webhook %s: %w", errUnverified, h.name, err)
			}
			some = true
		}
	}
	if !some {
		return nil
	}
	g.reporter.report(ctx, reasonFilesUntrusted, "", why)
	return why
}

// lastMoment returns a time shortly before p expires, after which any next pair is used.
func lastMoment(p *pair, recheck time.Duration) time.Time {
	life := p.leaf.NotAfter.Sub(p.leaf.NotBefore)
	return p.leaf.NotAfter.Add(-min(recheck, life/10))
}

// sameIssuer reports whether every verifier of p verifies o: the same CA signed both with
// the same key, through the same intermediates.
func (p *pair) sameIssuer(o *pair) bool {
	return len(p.leaf.AuthorityKeyId) != 0 &&
		bytes.Equal(p.leaf.AuthorityKeyId, o.leaf.AuthorityKeyId) &&
		bytes.Equal(p.leaf.RawIssuer, o.leaf.RawIssuer) &&
		slices.EqualFunc(p.chain[1:], o.chain[1:], (*x509.Certificate).Equal)
}

// compare reports whether a webhook verifies current but not next, and whether all verify
// current.
func (r *reading) compare(current, next *pair, now time.Time) (lost, trusted bool) {
	trusted = true
	for _, c := range r.configurations {
		if c == nil {
			continue
		}
		for _, h := range c.hooks {
			if !current.verifiedBy(h.client.CABundle, now) {
				trusted = false
			} else if !next.verifiedBy(h.client.CABundle, now) {
				lost = true
			}
		}
	}
	return lost, trusted
}

// verifiedBy reports whether bundle verifies p as a server certificate, for any name.
func (p *pair) verifiedBy(bundle []byte, now time.Time) bool {
	cas, err := parseCertificates(bundle)
	return err == nil && p.signedBy(cas, now)
}

func (p *pair) signedBy(cas []*x509.Certificate, now time.Time) bool {
	options := x509.VerifyOptions{
		Roots:         x509.NewCertPool(),
		Intermediates: x509.NewCertPool(),
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, ca := range cas {
		options.Roots.AddCert(ca)
	}
	for _, c := range p.chain[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := p.leaf.Verify(options)
	return err == nil
}
