package certs

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestTheBundleIsAnnotatedForAnotherWriter(t *testing.T) {
	t.Parallel()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	clock := clocktesting.NewFakeClock(start())
	annotating := func(o *Options) { o.Annotate = true }
	r := newReplica(t, c, clock, nil, annotating)

	require.ErrorIs(t, r.once(t.Context()), errNotCopied)
	require.ErrorIs(t, r.Ready(nil), errNotPublished, "the API server does not verify the certificate yet")
	bundle := c.secret(t).Data[dataBundle]
	require.Equal(t, map[string]string{"team": "platform", AnnotationBundle: string(bundle)}, c.mutating(t).Annotations)
	require.Equal(t, map[string]string{AnnotationBundle: string(bundle)}, c.validating(t).Annotations)
	want := validatingConfiguration()
	require.Equal(t, want.Webhooks, c.validating(t).Webhooks, "the webhooks are another's")

	writes := len(c.writes())
	require.ErrorIs(t, r.once(t.Context()), errNotCopied)
	require.Len(t, c.writes(), writes)

	// The writer copies the bundle.
	validating, mutating := c.validating(t), c.mutating(t)
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.CABundle = bundle
	}
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].ClientConfig.CABundle = bundle
	}
	api := c.client(nil).AdmissionregistrationV1()
	_, err := api.ValidatingWebhookConfigurations().Update(t.Context(), validating, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = api.MutatingWebhookConfigurations().Update(t.Context(), mutating, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, r.once(t.Context()))
	require.NoError(t, r.Ready(nil))
}

func TestWithoutWebhooksAnAnnotatedBundleSuffices(t *testing.T) {
	t.Parallel()
	validating, mutating := validatingConfiguration(), mutatingConfiguration()
	validating.Webhooks, mutating.Webhooks = nil, nil
	r := newReplica(t, newCluster(t, validating, mutating), clocktesting.NewFakeClock(start()), nil, func(o *Options) { o.Annotate = true })
	require.NoError(t, r.once(t.Context()))
	require.NoError(t, r.Ready(nil), "it is ready before anything is registered")
}
