package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// maxPEM is the maximum size in bytes of a certificate, bundle or key (F05). The largest
	// in practice, RSA chains of a corporate CA, have a tenth of it.
	maxPEM = 64 << 10
	// maxBackdate is how far the clock of an API server may be behind that of the replica.
	maxBackdate = 5 * time.Minute
	// caNamePrefix distinguishes CAs of Tollgate from others in a configuration.
	caNamePrefix = "tollgate-ca-"
)

// newAuthority returns a self-signed CA. The time in its name distinguishes CAs for
// verifiers that compare names first.
func newAuthority(now time.Time, life time.Duration) (*pair, error) {
	p, err := sign(&x509.Certificate{
		Subject:  pkix.Name{CommonName: caNamePrefix + now.UTC().Format("20060102T150405Z")},
		NotAfter: now.Add(life),
		IsCA:     true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, now, nil)
	if err != nil {
		return nil, fmt.Errorf("issue CA: %w", err)
	}
	return p, nil
}

// issue signs a serving certificate for hosts with the key of a CA. It expires no later than
// the CA.
func (p *pair) issue(now time.Time, life time.Duration, hosts []string) (*pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "tollgate-webhook"},
		NotAfter:    earlier(now.Add(life), p.leaf.NotAfter),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range sets.List(sets.New(hosts...)) {
		if address := net.ParseIP(h); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	issued, err := sign(template, now, p)
	if err != nil {
		return nil, fmt.Errorf("issue serving certificate: %w", err)
	}
	issued.issuer = p.leaf
	return issued, nil
}

// sign completes a template that has a NotAfter and signs it with a new key, or with the
// key of the CA if there is one. crypto/x509 chooses the serial number.
func sign(template *x509.Certificate, now time.Time, ca *pair) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	template.BasicConstraintsValid = true
	template.NotBefore = now.Add(-min(maxBackdate, template.NotAfter.Sub(now)/10))
	parent, signer := template, crypto.PrivateKey(key)
	if ca != nil {
		parent, signer = ca.leaf, ca.served.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	return parsePair(
		pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: keyutil.PrivateKeyBlockType, Bytes: keyDER}),
	)
}

// encodeCertificates returns certificates as PEM.
func encodeCertificates(certs ...*x509.Certificate) []byte {
	data, _ := certutil.EncodeCertificates(certs...) // A block without headers can always be encoded.
	return data
}

// pair is a certificate chain with the key of its leaf; for a CA, the chain is the CA alone.
type pair struct {
	certPEM []byte
	keyPEM  []byte
	// leaf belongs to the key, and intermediates follow it in the chain.
	leaf          *x509.Certificate
	intermediates []*x509.Certificate
	// issuer is Tollgate's CA that signed the leaf; nil for files and for a CA.
	issuer *x509.Certificate
	// served is the certificate for handshakes. It is immutable.
	served *tls.Certificate
}

func parsePair(certPEM, keyPEM []byte) (*pair, error) {
	chain, err := parseCertificates(certPEM)
	if err != nil {
		return nil, fmt.Errorf("decode certificate: %w", err)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, err
	}
	public, ok := key.Public().(interface {
		Equal(other crypto.PublicKey) bool
	})
	if !ok || !public.Equal(chain[0].PublicKey) {
		return nil, errors.New("key does not belong to certificate")
	}
	served := &tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for _, c := range chain {
		served.Certificate = append(served.Certificate, c.Raw)
	}
	return &pair{certPEM: certPEM, keyPEM: keyPEM, leaf: chain[0], intermediates: chain[1:], served: served}, nil
}

func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	if len(data) > maxPEM {
		return nil, fmt.Errorf("%d bytes are more than the %d allowed", len(data), maxPEM)
	}
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return nil, err
	}
	return certs, nil
}

func parseKey(data []byte) (crypto.Signer, error) {
	if len(data) > maxPEM {
		return nil, fmt.Errorf("decode key: %d bytes are more than the %d allowed", len(data), maxPEM)
	}
	key, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("decode key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("decode key: a %T cannot sign", key)
	}
	return signer, nil
}

// same reports whether p and o are the same certificate and key.
func (p *pair) same(o *pair) bool {
	return p == o || p != nil && o != nil && bytes.Equal(p.certPEM, o.certPEM) && bytes.Equal(p.keyPEM, o.keyPEM)
}

// usable reports whether the pair is not nil and has not expired. NotBefore is left to the
// API server's clock: a replica with a slow clock would otherwise overwrite the writes of
// the others.
func (p *pair) usable(now time.Time) bool {
	return p != nil && !expired(p.leaf, now)
}

// lastMoment returns a time shortly before p expires, after which any next pair is used.
func (p *pair) lastMoment(recheck time.Duration) time.Time {
	life := p.leaf.NotAfter.Sub(p.leaf.NotBefore)
	return p.leaf.NotAfter.Add(-min(recheck, life/10))
}

func expired(cert *x509.Certificate, now time.Time) bool {
	return !now.Before(cert.NotAfter)
}

// renewal returns the time to replace a certificate: after two thirds of its lifetime.
func renewal(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 3 * 2).Truncate(time.Second)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
