package certmanager

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// certificateOf returns the first certificate of what a Secret holds.
func certificateOf(ctx context.Context, t *testing.T, secret string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(secretOf(ctx, t, secret)[corev1.TLSCertKey])
	require.NotNil(t, block)
	certificate, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return certificate
}

func TestF01ForcedRenewalsUnderLoadFailNoReview(t *testing.T) {
	const renewals = 3
	ctx := t.Context()
	before, err := bundles(ctx, clientOf(t))
	require.NoError(t, err)
	load := startLoad(t)
	for range renewals {
		key := secretOf(ctx, t, servingName)[corev1.TLSPrivateKeyKey]
		renew(ctx, t, servingName)
		require.NotEqual(t, key, secretOf(ctx, t, servingName)[corev1.TLSPrivateKeyKey], "the key is rotated, too")
		serial := certificateOf(ctx, t, servingName).SerialNumber.Text(16)
		eventually(ctx, t, "the certificate is served", func(context.Context) error { return load.met(serial) })
	}
	load.requireNoFailure(t)
	after, err := bundles(ctx, clientOf(t))
	require.NoError(t, err)
	require.Equal(t, before, after, "the CA is the same")
}

// filesUntrusted counts how often a certificate was not taken because its CA is not trusted.
const filesUntrusted = `tollgate_certificate_errors_total{reason="files_untrusted"} `

// counter returns what a series is at, as it is written. It is an error if it is not there.
func counter(ctx context.Context, series string) (string, error) {
	status, metrics, err := suite.Fetch(ctx, tollgate.MetricsURL)
	if err != nil {
		return "", err
	}
	_, value, found := strings.Cut(metrics, series)
	if !found {
		return "", fmt.Errorf("metrics (status %d) have no %s", status, series)
	}
	value, _, _ = strings.Cut(value, "\n")
	return value, nil
}

// The worst that can come: the CA has a new key and has signed, the files are there at
// once, and cainjector is not.
func TestF04ARotationOfTheCAFailsNoReview(t *testing.T) {
	ctx := t.Context()
	injector, err := shared.Process(cainjector)
	require.NoError(t, err)
	load := startLoad(t)
	old := certificateOf(ctx, t, servingName)
	oldCA := certificateOf(ctx, t, caName)
	waited, err := counter(ctx, filesUntrusted)
	require.NoError(t, err)
	require.NoError(t, injector.Kill(ctx))
	// The tests that follow need it, however this one ends.
	t.Cleanup(func() {
		if p, err := shared.Process(cainjector); err == nil && !p.Alive() {
			require.NoError(t, startCertManager(cainjector))
		}
	})

	renew(ctx, t, caName)
	ca := certificateOf(ctx, t, caName)
	require.NotEqual(t, oldCA.SubjectKeyId, ca.SubjectKeyId)
	require.Equal(t, old.SerialNumber, certificateOf(ctx, t, servingName).SerialNumber, "cert-manager renews it in its own time")
	renew(ctx, t, servingName)
	renewed := certificateOf(ctx, t, servingName)
	require.NoError(t, renewed.CheckSignatureFrom(ca))

	eventually(ctx, t, "Tollgate says that the new certificate waits", func(ctx context.Context) error {
		now, err := counter(ctx, filesUntrusted)
		if err == nil && now == waited {
			err = errors.New("it does not")
		}
		return err
	})
	require.NoError(t, readiness(ctx, tollgate.HealthURL))
	require.Error(t, load.met(renewed.SerialNumber.Text(16)))

	require.NoError(t, startCertManager(cainjector))
	injected := time.Now()
	eventually(ctx, t, "all bundles hold both CAs", func(ctx context.Context) error {
		all, err := bundles(ctx, clientOf(t))
		if err != nil {
			return err
		}
		for webhook, bundle := range all {
			for _, wanted := range []*x509.Certificate{oldCA, ca} {
				encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: wanted.Raw})
				if !bytes.Contains(bundle, encoded) {
					return errors.New(webhook + " lacks one")
				}
			}
		}
		return nil
	})
	eventually(ctx, t, "the new certificate is served", func(context.Context) error { return load.met(renewed.SerialNumber.Text(16)) })
	t.Logf("served %s after cainjector was back", time.Since(injected).Round(time.Second))
	load.requireNoFailure(t)
}
