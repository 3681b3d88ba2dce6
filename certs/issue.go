package certs

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/util/pki"
)

// maxBackdate is how far the clock of an API server may be behind ours.
const maxBackdate = 5 * time.Minute

// authority is a CA that can sign.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func (a *authority) usable(now time.Time) bool {
	return a != nil && !expired(a.cert, now)
}

// caNamePrefix is how a CA of ours is told from one that someone else put into a
// configuration.
const caNamePrefix = "tollgate-ca-"

// newAuthority makes a self-signed CA. The time in its name keeps CAs apart for
// verifiers that look at names first.
func newAuthority(now time.Time, life time.Duration) (*authority, error) {
	template, key, err := prepare(certmanagerv1.CertificateSpec{
		CommonName: caNamePrefix + now.UTC().Format("20060102T150405Z"),
		IsCA:       true,
		Usages:     []certmanagerv1.KeyUsage{certmanagerv1.UsageCertSign, certmanagerv1.UsageDigitalSignature},
	}, now, now.Add(life))
	if err != nil {
		return nil, fmt.Errorf("prepare CA: %w", err)
	}
	_, cert, err := pki.SignCertificate(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign CA: %w", err)
	}
	return &authority{cert: cert, key: key}, nil
}

// issue signs a serving certificate for hosts, which ends no later than the CA.
func (a *authority) issue(now time.Time, life time.Duration, hosts []string) (*pair, error) {
	names, addresses := splitHosts(hosts)
	notAfter := now.Add(life)
	if notAfter.After(a.cert.NotAfter) {
		notAfter = a.cert.NotAfter
	}
	template, key, err := prepare(certmanagerv1.CertificateSpec{
		CommonName:  "tollgate-webhook",
		DNSNames:    names,
		IPAddresses: addresses,
		Usages:      []certmanagerv1.KeyUsage{certmanagerv1.UsageServerAuth, certmanagerv1.UsageDigitalSignature},
	}, now, notAfter)
	if err != nil {
		return nil, fmt.Errorf("prepare serving certificate: %w", err)
	}
	certPEM, _, err := pki.SignCertificate(template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("sign serving certificate: %w", err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	p, err := parsePair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("parse serving certificate: %w", err)
	}
	p.issuer = a.cert
	return p, nil
}

// prepare makes a key and the template of a certificate for it. The template
// is cert-manager's, but for the time of day, which it would take from the
// machine.
func prepare(spec certmanagerv1.CertificateSpec, now, notAfter time.Time) (*x509.Certificate, crypto.Signer, error) {
	spec.PrivateKey = &certmanagerv1.CertificatePrivateKey{
		Algorithm: certmanagerv1.ECDSAKeyAlgorithm,
		Size:      pki.ECCurve256,
	}
	crt := &certmanagerv1.Certificate{Spec: spec}
	key, err := pki.GeneratePrivateKeyForCertificate(crt)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	request, err := pki.GenerateCSR(crt)
	if err != nil {
		return nil, nil, fmt.Errorf("generate request: %w", err)
	}
	usage, extended, err := pki.KeyUsagesForCertificateOrCertificateRequest(spec.Usages, spec.IsCA)
	if err != nil {
		return nil, nil, fmt.Errorf("translate usages: %w", err)
	}
	template, err := pki.CertificateTemplateFromCSR(
		request,
		validBetween(now.Add(-min(maxBackdate, notAfter.Sub(now)/10)), notAfter),
		pki.CertificateTemplateValidateAndOverrideBasicConstraints(spec.IsCA, nil),
		pki.CertificateTemplateValidateAndOverrideKeyUsages(usage, extended),
	)
	if err != nil {
		return nil, nil, fmt.Errorf("make template: %w", err)
	}
	return template, key, nil
}

func validBetween(notBefore, notAfter time.Time) pki.CertificateTemplateValidatorMutator {
	return func(_ *x509.CertificateRequest, template *x509.Certificate) error {
		template.NotBefore, template.NotAfter = notBefore, notAfter
		return nil
	}
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	data, err := pki.EncodePrivateKey(key, certmanagerv1.PKCS8)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return data, nil
}

func encodeBundle(bundle []*x509.Certificate) ([]byte, error) {
	var data []byte
	for _, cert := range bundle {
		one, err := pki.EncodeX509(cert)
		if err != nil {
			return nil, fmt.Errorf("encode bundle: %w", err)
		}
		data = append(data, one...)
	}
	return data, nil
}

// splitHosts sorts hosts into DNS names and addresses, each once and in order.
func splitHosts(hosts []string) (names, addresses []string) {
	hosts = slices.Clone(hosts)
	slices.Sort(hosts)
	for _, h := range slices.Compact(hosts) {
		if _, err := netip.ParseAddr(h); err == nil {
			addresses = append(addresses, h)
		} else {
			names = append(names, h)
		}
	}
	return names, addresses
}
