package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestStateSurvivesTheSecret(t *testing.T) {
	t.Parallel()
	now := start()
	noted := mustApply(t, stepNotePublished, mustApply(t, stepBeginRollOver, freshState(t, now), now), now.Add(time.Millisecond))
	secret := secretOf(t, noted)
	secret.Data["theirs"] = []byte("kept")
	secret.Annotations["theirs"] = "kept"

	s := parseState(secret)
	require.Empty(t, s.problems)
	require.True(t, s.ca.leaf.Equal(noted.ca.leaf))
	require.True(t, s.next.leaf.Equal(noted.next.leaf))
	require.True(t, s.serving.same(noted.serving))
	require.True(t, s.published.Equal(noted.published))
	require.Len(t, s.bundle, 2)

	before := secret.DeepCopy()
	s.writeTo(secret)
	require.Equal(t, before, secret)
}

func TestStateOfBrokenSecrets(t *testing.T) {
	t.Parallel()
	now := start()
	fresh := freshState(t, now)
	other := freshState(t, now)
	begun := mustApply(t, stepBeginRollOver, fresh, now)
	otherSecret := secretOf(t, other)

	tests := map[string]struct {
		from            *state
		change          func(data map[string][]byte)
		ca, next, serve bool
		problem         string
	}{
		"nothing is wrong": {
			from: begun, change: func(map[string][]byte) {}, ca: true, next: true, serve: true,
		},
		"a Secret without data is empty": {
			from: fresh, change: func(d map[string][]byte) { clear(d) },
		},
		"F02 the key of another certificate": {
			from: fresh, change: func(d map[string][]byte) { d[dataServingKey] = otherSecret.Data[dataServingKey] },
			ca: true, problem: "tls.crt: key does not belong to certificate",
		},
		"F02 an empty certificate": {
			from: fresh, change: func(d map[string][]byte) { d[dataServingCert] = nil },
			ca: true, problem: "tls.crt: decode certificate",
		},
		"F02 a certificate cut in half": {
			from: fresh, change: func(d map[string][]byte) { d[dataServingCert] = d[dataServingCert][:len(d[dataServingCert])/2] },
			ca: true, problem: "tls.crt: decode certificate",
		},
		"F02 garbage for a key": {
			from: fresh, change: func(d map[string][]byte) { d[dataServingKey] = []byte("garbage") },
			ca: true, problem: "tls.crt: decode key",
		},
		"F02 a pair of another CA": {
			from: fresh, change: func(d map[string][]byte) {
				d[dataServingCert], d[dataServingKey] = otherSecret.Data[dataServingCert], otherSecret.Data[dataServingKey]
			},
			ca: true, problem: "tls.crt: certificate was issued by none of the bundle",
		},
		"F02 a CA key that fits no CA": {
			from: fresh, change: func(d map[string][]byte) { d[dataCAKey] = otherSecret.Data[dataCAKey] },
			serve: true, problem: "ca.key: key belongs to no certificate of the bundle",
		},
		"F02 no CA key": {
			from: fresh, change: func(d map[string][]byte) { delete(d, dataCAKey) },
			serve: true, problem: "ca.key: decode key",
		},
		"no CA key while the next CA takes its place": {
			from: begun, change: func(d map[string][]byte) { delete(d, dataCAKey) },
			next: true, serve: true,
		},
		"F02 garbage for the next CA key": {
			from: begun, change: func(d map[string][]byte) { d[dataNextCAKey] = []byte("garbage") },
			ca: true, serve: true, problem: "next-ca.key: decode key",
		},
		"F02 a bundle of garbage": {
			from: fresh, change: func(d map[string][]byte) { d[dataBundle] = []byte("garbage") },
			problem: "ca.crt: ",
		},
		"a bundle with a certificate that is no CA": {
			from: fresh, change: func(d map[string][]byte) { d[dataBundle] = append(d[dataBundle], d[dataServingCert]...) },
			ca: true, serve: true, problem: "ca.crt: certificate is not a CA",
		},
		"F05 a certificate of a megabyte": {
			from: fresh, change: func(d map[string][]byte) { d[dataServingCert] = megabyteOfPEM() },
			ca: true, problem: "tls.crt: decode certificate: 1048576 bytes are more than the 65536 allowed",
		},
		"F05 a key of a megabyte": {
			from: fresh, change: func(d map[string][]byte) { d[dataCAKey] = megabyteOfPEM() },
			serve: true, problem: "ca.key: decode key: 1048576 bytes are more than the 65536 allowed",
		},
		"F05 a bundle of a megabyte": {
			from: fresh, change: func(d map[string][]byte) { d[dataBundle] = megabyteOfPEM() },
			problem: "ca.crt: 1048576 bytes are more than the 65536 allowed",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret := secretOf(t, tt.from)
			tt.change(secret.Data)
			s := parseState(secret)
			require.Equal(t, tt.ca, s.ca != nil, "CA")
			require.Equal(t, tt.next, s.next != nil, "next CA")
			require.Equal(t, tt.serve, s.serving != nil, "serving certificate")
			err := errors.Join(s.problems...)
			if tt.problem == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.problem)
		})
	}
	require.Equal(t, state{}, parseState(&corev1.Secret{}))
}

// megabyteOfPEM is data for which a naive decoder searches the end of a block again and
// again.
func megabyteOfPEM() []byte {
	return bytes.Repeat([]byte("-----BEGIN \n"), 1<<20/12+1)[:1<<20]
}

func TestStateIgnoresAnUnreadablePublicationTime(t *testing.T) {
	t.Parallel()
	now := start()
	secret := secretOf(t, mustApply(t, stepNotePublished, mustApply(t, stepBeginRollOver, freshState(t, now), now), now))
	secret.Annotations[annotationPublished] = "yesterday"
	s := parseState(secret)
	require.True(t, s.published.IsZero())
	require.NotNil(t, s.next)
}

func TestIssuedCertificates(t *testing.T) {
	t.Parallel()
	now := start()
	ca, err := newAuthority(now, time.Hour)
	require.NoError(t, err)
	require.True(t, ca.leaf.IsCA)
	require.True(t, ca.leaf.BasicConstraintsValid)
	require.Equal(t, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature, ca.leaf.KeyUsage)
	require.Equal(t, "tollgate-ca-20310301T090000Z", ca.leaf.Subject.CommonName)
	require.Equal(t, now.Add(time.Hour), ca.leaf.NotAfter)
	require.Equal(t, now.Add(-5*time.Minute), ca.leaf.NotBefore, "clocks that are behind are met")

	p, err := ca.issue(now, 10*time.Minute, []string{"b.example.com", "2001:db8::1", "a.example.com", "192.0.2.1", "a.example.com"})
	require.NoError(t, err)
	require.Equal(t, []string{"a.example.com", "b.example.com"}, p.leaf.DNSNames)
	require.Len(t, p.leaf.IPAddresses, 2)
	require.False(t, p.leaf.IsCA)
	require.Equal(t, x509.KeyUsageDigitalSignature, p.leaf.KeyUsage)
	require.Equal(t, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, p.leaf.ExtKeyUsage)
	require.Equal(t, now.Add(10*time.Minute), p.leaf.NotAfter)
	require.Equal(t, now.Add(-time.Minute), p.leaf.NotBefore, "a tenth of a short life")

	again, err := ca.issue(now, 10*time.Minute, []string{"a.example.com"})
	require.NoError(t, err)
	require.NotEqual(t, p.leaf.SerialNumber, again.leaf.SerialNumber)
	require.Equal(t, 0, strings.Count(string(p.certPEM), "PRIVATE"))
	block, _ := pem.Decode(p.keyPEM)
	require.Equal(t, "PRIVATE KEY", block.Type)
}
