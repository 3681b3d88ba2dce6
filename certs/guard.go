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

// filesDelay is how long the CA of another issuer stands in the webhook
// configurations before its certificate is used: API servers hear of it by a
// watch, and kubelets bring files to other replicas within minutes anyway.
const filesDelay = 30 * time.Second

var (
	errUntrusted  = errors.New("certificate cannot be verified yet by the caBundle of a webhook that verifies the one in use, which stays")
	errUnverified = errors.New("serving certificate has not been found to be verified by the caBundle of any webhook")
)

// guard keeps a certificate out that the API server would refuse where it takes
// the one in use (F04). Those who issue certificates and those who inject the CA
// are not the same, and the files may be here first.
type guard struct {
	// targets are read, and never written.
	targets  *publisher
	reporter *reporter
	recheck  time.Duration
	// next is what was verified by the bundles, and since when.
	next *pair
	from time.Time
}

// until is when next may take the place of current, or the zero time if it may
// now. An error is to be tried again.
func (g *guard) until(ctx context.Context, current, next *pair, now time.Time) (time.Time, error) {
	if len(g.targets.targets) == 0 || !current.usable(now) || current.sameIssuer(next) || !now.Before(lastMoment(current, g.recheck)) {
		return time.Time{}, nil
	}
	found := g.targets.read(ctx)
	if apierrors.IsForbidden(found.err) {
		// Who does not let Tollgate see the bundles answers for them.
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
		// The one in use serves nobody, or not all.
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

// verify returns an error if no webhook verifies p, though some has a caBundle. One
// that has none leaves it to the roots of the API server's machine, or waits for one. The
// error says which caBundle cannot even be decoded.
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

// lastMoment is a little before p expires: from then on what comes next is used
// whatever it is.
func lastMoment(p *pair, recheck time.Duration) time.Time {
	life := p.leaf.NotAfter.Sub(p.leaf.NotBefore)
	return p.leaf.NotAfter.Add(-min(recheck, life/10))
}

// sameIssuer reports whether whoever verifies p verifies o: the same CA signed
// both by the same key, if by way of the same intermediates.
func (p *pair) sameIssuer(o *pair) bool {
	return len(p.leaf.AuthorityKeyId) != 0 &&
		bytes.Equal(p.leaf.AuthorityKeyId, o.leaf.AuthorityKeyId) &&
		bytes.Equal(p.leaf.RawIssuer, o.leaf.RawIssuer) &&
		slices.EqualFunc(p.chain[1:], o.chain[1:], (*x509.Certificate).Equal)
}

// compare reports whether some webhook verifies current and not next, and whether
// all verify current.
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

// verifiedBy reports whether bundle verifies p for a server, by whatever name.
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
