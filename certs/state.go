package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The keys of the Secret. The serving certificate has the keys of every kubernetes.io/tls
// Secret.
const (
	dataServingCert = corev1.TLSCertKey
	dataServingKey  = corev1.TLSPrivateKeyKey
	// dataBundle holds every trusted CA. The private keys tell which of them signs, and
	// which is next.
	dataBundle    = "ca.crt"
	dataCAKey     = "ca.key"
	dataNextCAKey = "next-ca.key"

	// labelOwned marks the Secret as one that may be written.
	labelOwned      = "tollgate.dev/certificates"
	labelOwnedValue = "own-ca"
	// annotationPublished is the time since which all configurations hold the next CA.
	annotationPublished = "tollgate.dev/next-ca-published"
	// annotationRollOver requests a new CA, whatever its value.
	annotationRollOver = "tollgate.dev/roll-over"
)

// maxBundle caps the CAs in the bundle, however often a new one is requested.
const maxBundle = 8

// state is the usable content of the Secret. problems names the rest.
type state struct {
	// bundle are the trusted CAs. It contains ca, next and the issuer of serving.
	bundle []*x509.Certificate
	// ca signs. It is nil if the Secret has no usable key for one of the bundle.
	ca *authority
	// next becomes ca after its publication; nil outside of a roll-over.
	next *authority
	// serving was issued by a CA of the bundle, or is nil.
	serving *pair
	// published is zero until next was seen in all configurations.
	published time.Time
	// rollOver is true if a new CA was requested.
	rollOver bool
	problems []error
}

// parseState parses the Secret. It returns an empty state for nil, and for a Secret
// without data, which an administrator may have created for Tollgate.
func parseState(secret *corev1.Secret) state {
	var s state
	if secret == nil || len(secret.Data) == 0 {
		return s
	}
	data := secret.Data
	s.parseBundle(data[dataBundle])
	if len(data[dataNextCAKey]) != 0 {
		s.next = s.parseAuthority(dataNextCAKey, data[dataNextCAKey])
	}
	// Without a usable ca.key, the state has no ca while the next CA replaces it.
	if len(data[dataCAKey]) != 0 || s.next == nil {
		s.ca = s.parseAuthority(dataCAKey, data[dataCAKey])
	}
	s.parseServing(data[dataServingCert], data[dataServingKey])
	_, s.rollOver = secret.Annotations[annotationRollOver]
	if at, ok := secret.Annotations[annotationPublished]; ok && s.next != nil {
		// An invalid time counts as none: the delay starts again.
		s.published, _ = time.Parse(time.RFC3339Nano, at)
	}
	return s
}

func (s *state) problem(key string, err error) {
	s.problems = append(s.problems, fmt.Errorf("%s: %w", key, err))
}

func (s *state) parseBundle(data []byte) {
	certs, err := parseCertificates(data)
	if err != nil {
		s.problem(dataBundle, err)
		return
	}
	for _, c := range certs {
		switch {
		case !c.IsCA:
			s.problem(dataBundle, errNotACA)
		case !s.trusts(c):
			s.bundle = append(s.bundle, c)
		}
	}
}

func (s *state) parseAuthority(key string, data []byte) *authority {
	signer, err := parseKey(data)
	if err != nil {
		s.problem(key, err)
		return nil
	}
	for _, c := range s.bundle {
		if belongs(signer, c) {
			return &authority{cert: c, key: signer}
		}
	}
	s.problem(key, errors.New("key belongs to no certificate of the bundle"))
	return nil
}

func (s *state) parseServing(certPEM, keyPEM []byte) {
	serving, err := parsePair(certPEM, keyPEM)
	if err != nil {
		s.problem(dataServingCert, err)
		return
	}
	serving.issuer = serving.issuerAmong(s.bundle)
	if serving.issuer == nil {
		s.problem(dataServingCert, errors.New("certificate was issued by none of the bundle"))
		return
	}
	s.serving = serving
}

func (s *state) trusts(cert *x509.Certificate) bool {
	return slices.ContainsFunc(s.bundle, cert.Equal)
}

// whole reports whether the state has a usable CA and serving certificate.
func (s *state) whole(now time.Time) bool {
	return s.ca.usable(now) && s.serving.usable(now)
}

// trim sorts the bundle and drops expired CAs with their keys. The CAs in use come first,
// then the newest.
func (s *state) trim(now time.Time) {
	if !s.ca.usable(now) {
		s.ca = nil
	}
	if !s.next.usable(now) {
		s.next, s.published = nil, time.Time{}
	}
	old := slices.DeleteFunc(slices.Clone(s.bundle), func(c *x509.Certificate) bool { return expired(c, now) })
	slices.SortStableFunc(old, func(a, b *x509.Certificate) int { return b.NotBefore.Compare(a.NotBefore) })
	s.bundle = nil
	keep := func(c *x509.Certificate) {
		if !s.trusts(c) && len(s.bundle) < maxBundle {
			s.bundle = append(s.bundle, c)
		}
	}
	for _, a := range []*authority{s.ca, s.next} {
		if a != nil {
			keep(a.cert)
		}
	}
	for _, c := range old {
		if s.serving != nil && s.serving.issuer.Equal(c) {
			keep(c)
		}
	}
	for _, c := range old {
		keep(c)
	}
}

// writeTo writes the state into the Secret and keeps all other fields. serving is not nil:
// every step of the plan results in one.
func (s *state) writeTo(secret *corev1.Secret) error {
	bundle, err := encodeBundle(s.bundle)
	if err != nil {
		return err
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	secret.Data[dataBundle] = bundle
	secret.Data[dataServingCert], secret.Data[dataServingKey] = s.serving.certPEM, s.serving.keyPEM
	for key, a := range map[string]*authority{dataCAKey: s.ca, dataNextCAKey: s.next} {
		delete(secret.Data, key)
		if a == nil {
			continue
		}
		if secret.Data[key], err = encodeKey(a.key); err != nil {
			return err
		}
	}
	delete(secret.Annotations, annotationPublished)
	if !s.published.IsZero() {
		secret.Annotations[annotationPublished] = s.published.UTC().Format(time.RFC3339Nano)
	}
	if !s.rollOver {
		delete(secret.Annotations, annotationRollOver)
	}
	return nil
}
