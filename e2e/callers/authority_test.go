package callers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// lasting is for how long certificates are good that do not expire in the tests.
const lasting = 24 * time.Hour

// authority signs certificates of clients.
type authority struct {
	pem         []byte
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key of authority: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook-clients"},
		NotBefore: time.Now().Add(-lasting), NotAfter: time.Now().Add(lasting),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, fmt.Errorf("parse authority: %w", err)
	}
	return &authority{encode("CERTIFICATE", raw), certificate, key}, nil
}

// authorityIn reads an authority from files.
func authorityIn(certificate, key string) (*authority, error) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	private, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read authority: %s is a %T, not a key of ECDSA", key, pair.PrivateKey)
	}
	return &authority{encode("CERTIFICATE", pair.Leaf.Raw), pair.Leaf, private}, nil
}

// issue issues a certificate for a client that is good for a while, from an hour ago on, and
// its key.
func (a *authority) issue(name string, until time.Duration) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key of %s: %w", name, err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(until),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.certificate, private.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate of %s: %w", name, err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key of %s: %w", name, err)
	}
	return encode("CERTIFICATE", raw), encode("EC PRIVATE KEY", encoded), nil
}

func encode(what string, raw []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: what, Bytes: raw})
}
