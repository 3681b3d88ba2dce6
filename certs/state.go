package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The layout of the Secret. Its serving certificate stands where every reader
// of a kubernetes.io/tls Secret looks for it.
const (
	dataServingCert = corev1.TLSCertKey
	dataServingKey  = corev1.TLSPrivateKeyKey
	// dataBundle holds every CA to trust. Which of them signs, and which is next,
	// is told by the keys.
	dataBundle    = "ca.crt"
	dataCAKey     = "ca.key"
	dataNextCAKey = "next-ca.key"

	// labelOwned marks the Secret as one that may be written.
	labelOwned      = "tollgate.dev/certificates"
	labelOwnedValue = "own-ca"
	// annotationPublished is the time from which the next CA stands in all
	// configurations.
	annotationPublished = "tollgate.dev/next-ca-published"
	// annotationRollOver asks for a new CA, whatever its value.
	annotationRollOver = "tollgate.dev/roll-over"
)

// maxBundle bounds the CAs kept, however often a new one is asked for.
const maxBundle = 8

// state is what the Secret says, as far as it can be used. What cannot is left
// out and named in problems.
type state struct {
	// bundle are the CAs to trust. It holds ca, next and the issuer of serving.
	bundle []*x509.Certificate
	// ca signs. It is nil if the Secret has no usable key for one of the bundle.
	ca *authority
	// next is to sign once it is known everywhere; nil outside of a roll-over.
	next *authority
	// serving was issued by one of the bundle, or is nil.
	serving *pair
	// published is zero until next was seen in all configurations.
	published time.Time
	// rollOver is set if a new CA was asked for.
	rollOver bool
	problems []error
}

// parseState reads the Secret; nil stands for none and is an empty state, as is
// a Secret without data, which someone may have made for us to fill.
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
	// A CA whose key was lost has none here while the next one takes its place.
	if len(data[dataCAKey]) != 0 || s.next == nil {
		s.ca = s.parseAuthority(dataCAKey, data[dataCAKey])
	}
	s.parseServing(data[dataServingCert], data[dataServingKey])
	_, s.rollOver = secret.Annotations[annotationRollOver]
	if at, ok := secret.Annotations[annotationPublished]; ok && s.next != nil {
		// A time that cannot be read is as none: the delay starts again.
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

// whole reports whether the state has all that is needed to serve and to sign.
func (s *state) whole(now time.Time) bool {
	return s.ca.usable(now) && s.serving.usable(now)
}

// trim orders the bundle and drops what has expired, an expired CA with its key.
// The CAs in use come first, then the newest.
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

// writeTo puts the state into the Secret and leaves what is not ours there. The
// state has a serving certificate: no step of the plan leaves without one.
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
