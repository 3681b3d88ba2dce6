package certmanager

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

func TestTheCertificateIsIssuedAndItsCAInjected(t *testing.T) {
	ctx := t.Context()
	for _, name := range []string{caName, servingName} {
		require.NoError(t, ready(ctx, certManagerOf(t), name))
	}
	all, err := bundles(ctx, clientOf(t))
	require.NoError(t, err)
	require.Len(t, all, 5)
	for webhook, bundle := range all {
		require.NotEmpty(t, bundle, webhook)
		require.Contains(t, string(bundle), strings.TrimSpace(string(secretOf(ctx, t, servingName)["ca.crt"])), webhook)
	}
	for _, name := range []string{"tollgate.tollgate-system.svc", "127.0.0.1"} {
		met, err := handshake(ctx, clientOf(t), name)
		require.NoError(t, err, name)
		require.Equal(t, x509.ECDSA, met.PublicKeyAlgorithm)
	}
	require.NoError(t, admit(ctx, clientOf(t), metav1.NamespaceDefault))
}

func TestTollgateLeavesTheBundleToCainjector(t *testing.T) {
	ctx, api := t.Context(), clientOf(t).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	log := shared.LogPath(tollgate.Name)
	configuration, err := api.Get(ctx, install.Name, metav1.GetOptions{})
	require.NoError(t, err)
	configuration.Webhooks[0].ClientConfig.CABundle = nil
	_, err = api.Update(ctx, configuration, metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(ctx, t, "the bundle is injected again and pods are let in", func(ctx context.Context) error {
		_, err := handshake(ctx, clientOf(t), "127.0.0.1")
		return errors.Join(err, admit(ctx, clientOf(t), metav1.NamespaceDefault))
	})
	configuration, err = api.Get(ctx, install.Name, metav1.GetOptions{})
	require.NoError(t, err)
	for _, fields := range configuration.ManagedFields {
		require.NotContains(t, fields.Manager, "tollgate", log)
	}
}

func TestCertManagerStartsWithoutTollgate(t *testing.T) {
	ctx := t.Context()
	require.NoError(t, tollgate.Terminate(ctx))
	t.Cleanup(func() { require.NoError(t, tollgate.Start(context.WithoutCancel(ctx))) })
	eventually(ctx, t, "nobody answers", func(ctx context.Context) error {
		if err := admit(ctx, clientOf(t), metav1.NamespaceDefault); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			return fmt.Errorf("a pod is not refused, but: %v", err)
		}
		return nil
	})
	require.NoError(t, admit(ctx, clientOf(t), certManager))
}

// readiness returns the answer of the check of the certificate.
func readiness(ctx context.Context, health string) error {
	status, body, err := fetch(ctx, health+"/readyz/certificates")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", status, body)
	}
	return err
}
