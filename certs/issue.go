package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// maxBackdate is how far the clock of an API server may be behind that of the replica.
const maxBackdate = 5 * time.Minute

// authority is a CA with its private key.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func (a *authority) usable(now time.Time) bool {
	return a != nil && !expired(a.cert, now)
}

// caNamePrefix distinguishes CAs of Tollgate from others in a configuration.
const caNamePrefix = "tollgate-ca-"

// newAuthority returns a self-signed CA. The time in its name distinguishes CAs for
// verifiers that compare names first.
func newAuthority(now time.Time, life time.Duration) (*authority, error) {
	template, key, err := prepare(caNamePrefix+now.UTC().Format("20060102T150405Z"), now, now.Add(life))
	if err != nil {
		return nil, fmt.Errorf("prepare CA: %w", err)
	}
	template.BasicConstraintsValid, template.IsCA = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	cert, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign CA: %w", err)
	}
	return &authority{cert: cert, key: key}, nil
}

// issue signs a serving certificate for hosts, which expires no later than the CA.
func (a *authority) issue(now time.Time, life time.Duration, hosts []string) (*pair, error) {
	notAfter := now.Add(life)
	if notAfter.After(a.cert.NotAfter) {
		notAfter = a.cert.NotAfter
	}
	template, key, err := prepare("tollgate-webhook", now, notAfter)
	if err != nil {
		return nil, fmt.Errorf("prepare serving certificate: %w", err)
	}
	template.DNSNames, template.IPAddresses = splitHosts(hosts)
	template.BasicConstraintsValid = true
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	cert, err := sign(template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("sign serving certificate: %w", err)
	}
	certPEM, err := encodeBundle([]*x509.Certificate{cert})
	if err != nil {
		return nil, err
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

// prepare returns a new key and the common part of certificate templates.
func prepare(name string, now, notAfter time.Time) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: now.Add(-min(maxBackdate, notAfter.Sub(now)/10)), NotAfter: notAfter,
	}, key, nil
}

// sign signs a certificate; crypto/x509 chooses the serial number.
func sign(template, parent *x509.Certificate, key crypto.PublicKey, by crypto.Signer) (*x509.Certificate, error) {
	data, err := x509.CreateCertificate(rand.Reader, template, parent, key, by)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(data)
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	data, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyutil.PrivateKeyBlockType, Bytes: data}), nil
}

func encodeBundle(bundle []*x509.Certificate) ([]byte, error) {
	data, err := certutil.EncodeCertificates(bundle...)
	if err != nil {
		return nil, fmt.Errorf("encode bundle: %w", err)
	}
	return data, nil
}

// splitHosts splits hosts into sorted, unique DNS names and IP addresses.
func splitHosts(hosts []string) (names []string, addresses []net.IP) {
	hosts = slices.Clone(hosts)
	slices.Sort(hosts)
	for _, h := range slices.Compact(hosts) {
		if address := net.ParseIP(h); address != nil {
			addresses = append(addresses, address)
		} else {
			names = append(names, h)
		}
	}
	return names, addresses
}
