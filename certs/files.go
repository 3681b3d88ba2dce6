package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// files is the source that reads a pair which another program renews. It delays a pair
// that the API server would refuse while it accepts the current one (F04): the issuer of
// certificates and the injector of the CA are not synchronized, and the files may arrive
// first.
type files struct {
	// publisher only reads webhooks.
	*publisher

	use *inUse
	// next is the pair that the bundles verify, and from the time since which they do.
	next *pair
	from time.Time
}

// refresh uses the files if they hold a working pair (F02), and the API server verifies it
// or does not verify the current one (F04). A replica is ready once a webhook has verified
// its pair, so that a rollout does not replace a replica with a verified certificate. It
// stays ready after that: other replicas have the same files.
func (f *files) refresh(ctx context.Context, now time.Time) (time.Time, error) {
	p, why, err := f.load(now)
	if err != nil {
		// The kubelet swaps a directory, so the first read can return a certificate and the key of
		// the next one; the second read then returns the next pair.
		p, why, err = f.load(now)
	}
	if err != nil {
		return time.Time{}, f.check(ctx, why, f.Directory, fmt.Errorf("load certificate: %w", err))
	}
	_ = f.check(ctx, reasonFilesRead, f.Directory, nil)
	_ = f.check(ctx, reasonFilesInvalid, f.Directory, nil)
	if until, err := f.until(ctx, f.use.load(), p, now); err != nil || now.Before(until) {
		return until, err
	}
	if f.use.adopt(ctx, p) {
		f.Metrics.renewals.WithLabelValues(kindServing).Inc()
	}
	if !f.use.trusted.Load() {
		if err := f.verify(ctx, p, now); err != nil {
			return time.Time{}, err
		}
		f.use.trusted.Store(true)
	}
	_ = f.check(ctx, reasonFilesUntrusted, "", nil)
	return p.leaf.NotAfter, nil
}

// load reads a pair that has not expired, or returns an error with its reason.
func (f *files) load(now time.Time) (*pair, string, error) {
	directory := os.DirFS(f.Directory)
	certPEM, err := readCapped(directory, corev1.TLSCertKey)
	if err != nil {
		return nil, reasonFilesRead, err
	}
	keyPEM, err := readCapped(directory, corev1.TLSPrivateKeyKey)
	if err != nil {
		return nil, reasonFilesRead, err
	}
	p, err := parsePair(certPEM, keyPEM)
	if err == nil && !p.usable(now) {
		err = errors.New("certificate has expired")
	}
	return p, reasonFilesInvalid, err
}

// readCapped reads at most one byte more than maxPEM.
func readCapped(directory fs.FS, name string) ([]byte, error) {
	file, err := directory.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, maxPEM+1))
}

// until returns the time at which next may replace current, zero for now. The caller
// retries after an error.
func (f *files) until(ctx context.Context, current, next *pair, now time.Time) (time.Time, error) {
	if f.Configurations == "" || current == nil || current.sameIssuer(next) || !now.Before(current.lastMoment(f.recheck)) {
		return time.Time{}, nil
	}
	found, err := f.read(ctx)
	if apierrors.IsForbidden(err) {
		// Without the permission to read the bundles, the administrator is responsible for
		// them.
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	trusted, lost := true, false
	for _, w := range found.webhooks() {
		cas, _ := parseCertificates(w.ClientConfig.CABundle)
		verified := current.verifiedBy(cas, now)
		trusted = trusted && verified
		lost = lost || verified && !next.verifiedBy(cas, now)
	}
	if lost {
		f.next = nil
		return time.Time{}, f.check(ctx, reasonFilesUntrusted, "", errUntrusted)
	}
	if !trusted {
		// Some webhooks do not verify the current pair, so it is not worth keeping.
		return time.Time{}, nil
	}
	if !f.next.same(next) {
		f.next, f.from = next, now
	}
	return earlier(f.from.Add(filesDelay), current.lastMoment(f.recheck)), nil
}

// verify returns an error if no webhook verifies p, though one has a caBundle. A webhook
// without one relies on the system roots of the API server, or waits for an injector. The
// error names a caBundle that cannot be decoded.
func (f *files) verify(ctx context.Context, p *pair, now time.Time) error {
	found, err := f.read(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	var why error
	for _, w := range found.webhooks() {
		cas, err := parseCertificates(w.ClientConfig.CABundle)
		switch {
		case len(w.ClientConfig.CABundle) == 0 || p.verifiedBy(cas, now):
			return nil
		case err != nil:
			why = fmt.Errorf("%w: caBundle of webhook %s: %w", errUnverified, w.Name, err)
		case why == nil:
			why = errUnverified
		}
	}
	return f.check(ctx, reasonFilesUntrusted, "", why)
}

// sameIssuer reports whether every verifier of p verifies o: the same CA signed both with
// the same key, through the same intermediates.
func (p *pair) sameIssuer(o *pair) bool {
	return len(p.leaf.AuthorityKeyId) != 0 &&
		bytes.Equal(p.leaf.AuthorityKeyId, o.leaf.AuthorityKeyId) &&
		bytes.Equal(p.leaf.RawIssuer, o.leaf.RawIssuer) &&
		slices.EqualFunc(p.intermediates, o.intermediates, (*x509.Certificate).Equal)
}

// verifiedBy reports whether the CAs verify p as a server certificate, for any name.
func (p *pair) verifiedBy(cas []*x509.Certificate, now time.Time) bool {
	options := x509.VerifyOptions{
		Roots:         x509.NewCertPool(),
		Intermediates: x509.NewCertPool(),
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, ca := range cas {
		options.Roots.AddCert(ca)
	}
	for _, c := range p.intermediates {
		options.Intermediates.AddCert(c)
	}
	_, err := p.leaf.Verify(options)
	return err == nil
}
