package certmanager

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

func TestTheCertificateIsIssuedAndItsCAInjected(t *testing.T) {
	ctx := t.Context()
	for _, name := range []string{caName, servingName} {
		eventually(ctx, t, "it is ready", func(ctx context.Context) error { return ready(ctx, certManagerOf(t), name) })
	}
	all, err := bundles(ctx, clientOf(t))
	require.NoError(t, err)
	require.NotEmpty(t, all)
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
	// Cainjector may write it meanwhile, which is no conflict with a patch.
	_, err := api.Patch(ctx, install.Name, types.JSONPatchType,
		[]byte(`[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]`), metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(ctx, t, "the bundle is injected again and pods are let in", func(ctx context.Context) error {
		_, err := handshake(ctx, clientOf(t), "127.0.0.1")
		return errors.Join(err, admit(ctx, clientOf(t), metav1.NamespaceDefault))
	})
	configuration, err := api.Get(ctx, install.Name, metav1.GetOptions{})
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
		switch err := admit(ctx, clientOf(t), metav1.NamespaceDefault); {
		case err == nil:
			return errors.New("a pod is let in")
		case !strings.Contains(err.Error(), "failed calling webhook"):
			return fmt.Errorf("a pod is refused for another reason: %w", err)
		}
		return nil
	})
	require.NoError(t, admit(ctx, clientOf(t), certManager))
}

func TestTollgateMayNeitherReadSecretsNorWriteBundles(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", tollgate.Kubeconfig)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	const group = "admissionregistration.k8s.io"
	tests := map[string]struct {
		attributes authorizationv1.ResourceAttributes
		allowed    bool
	}{
		"reading its certificate":   {attributes: authorizationv1.ResourceAttributes{Namespace: tollgateSystem, Resource: "secrets", Name: servingName, Verb: "get"}},
		"reading the Secret of old": {attributes: authorizationv1.ResourceAttributes{Namespace: tollgateSystem, Resource: "secrets", Name: "tollgate-serving-certificate", Verb: "get"}},
		"creating a Secret":         {attributes: authorizationv1.ResourceAttributes{Namespace: tollgateSystem, Resource: "secrets", Verb: "create"}},
		"writing a bundle":          {attributes: authorizationv1.ResourceAttributes{Group: group, Resource: "validatingwebhookconfigurations", Name: install.Name, Verb: "patch"}},
		"reading a bundle":          {attributes: authorizationv1.ResourceAttributes{Group: group, Resource: "validatingwebhookconfigurations", Name: install.Name, Verb: "get"}, allowed: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &tt.attributes},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			require.Equal(t, tt.allowed, review.Status.Allowed)
		})
	}
}
