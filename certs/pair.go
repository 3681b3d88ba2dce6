package certs

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// maxPEM is the maximum size in bytes of a certificate, bundle or key (F05). The largest
// in practice, RSA chains of a corporate CA, have a tenth of it.
const maxPEM = 64 << 10

var errNotACA = errors.New("certificate is not a CA")

// pair is a certificate chain with the key of its leaf.
type pair struct {
	certPEM []byte
	keyPEM  []byte
	// chain begins with the leaf, which belongs to the key.
	chain []*x509.Certificate
	leaf  *x509.Certificate
	// issuer is Tollgate's CA that signed the leaf; nil for files.
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
	if !belongs(key, chain[0]) {
		return nil, errors.New("key does not belong to certificate")
	}
	served := &tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for _, c := range chain {
		served.Certificate = append(served.Certificate, c.Raw)
	}
	return &pair{certPEM: certPEM, keyPEM: keyPEM, chain: chain, leaf: chain[0], served: served}, nil
}

func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	if len(data) > maxPEM {
		return nil, fmt.Errorf("%d bytes are more than the %d allowed", len(data), maxPEM)
	}
	return certutil.ParseCertsPEM(data)
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

// belongs reports whether a certificate is for a key.
func belongs(key crypto.Signer, cert *x509.Certificate) bool {
	public, ok := key.Public().(interface {
		Equal(other crypto.PublicKey) bool
	})
	return ok && public.Equal(cert.PublicKey)
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

// issuerAmong returns the CA that signed the leaf, or nil. CAs of Tollgate have no
// intermediates.
func (p *pair) issuerAmong(cas []*x509.Certificate) *x509.Certificate {
	for _, ca := range cas {
		if bytes.Equal(p.leaf.RawIssuer, ca.RawSubject) && p.leaf.CheckSignatureFrom(ca) == nil {
			return ca
		}
	}
	return nil
}

// covers reports whether the leaf is valid for all hosts.
func (p *pair) covers(hosts []string) bool {
	for _, h := range hosts {
		if p.leaf.VerifyHostname(h) != nil {
			return false
		}
	}
	return true
}

func expired(cert *x509.Certificate, now time.Time) bool {
	return !now.Before(cert.NotAfter)
}

// renewal returns the time to replace a certificate: after two thirds of its lifetime.
func renewal(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 3 * 2).Truncate(time.Second)
}
