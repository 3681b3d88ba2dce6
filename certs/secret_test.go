package certs

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8stesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("not allowed"))
}

func TestFirstStart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	r := newReplica(t, c, clocktesting.NewFakeClock(start()), nil)
	require.ErrorIs(t, r.Ready(nil), errNoCertificate)
	_, err := r.GetCertificate(nil)
	require.ErrorIs(t, err, errNoCertificate)

	require.NoError(t, r.once(t.Context()))
	require.NoError(t, r.Ready(nil))
	require.Equal(t, []string{
		"create secrets",
		"patch validatingwebhookconfigurations",
		"patch mutatingwebhookconfigurations",
	}, c.writes())
	secret := c.secret(t)
	require.Equal(t, corev1.SecretTypeTLS, secret.Type)
	require.Equal(t, labelOwnedValue, secret.Labels[labelOwned])
	for _, w := range c.validating(t).Webhooks {
		require.Equal(t, secret.Data[dataBundle], w.ClientConfig.CABundle)
	}
	require.Equal(t, map[string]string{"team": "platform"}, c.mutating(t).Annotations)
	r.requireServes(t, c.mutating(t).Webhooks[0].ClientConfig.CABundle)

	t.Run("no-op refreshes write nothing", func(t *testing.T) {
		before := len(c.writes())
		for range 3 {
			require.NoError(t, r.once(t.Context()))
		}
		require.Len(t, c.writes(), before)
	})
	t.Run("a second replica adopts and writes nothing", func(t *testing.T) {
		before := len(c.writes())
		other := newReplica(t, c, r.clock, nil)
		require.NoError(t, other.once(t.Context()))
		require.NoError(t, other.Ready(nil))
		require.True(t, other.use.load().same(r.use.load()))
		require.Len(t, c.writes(), before)
	})
}

func TestReplicasRace(t *testing.T) {
	t.Parallel()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	clock := clocktesting.NewFakeClock(start())
	replicas := make([]*replica, 6)
	for i := range replicas {
		replicas[i] = newReplica(t, c, clock, nil)
	}
	race := func() {
		var all sync.WaitGroup
		errs := make([]error, len(replicas))
		for i, r := range replicas {
			all.Go(func() { errs[i] = r.once(t.Context()) })
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...))
		var renewals float64
		for _, r := range replicas {
			require.NoError(t, r.once(t.Context()))
			require.NoError(t, r.Ready(nil))
			require.True(t, r.use.load().same(replicas[0].use.load()))
			r.requireServes(t, c.validating(t).Webhooks[0].ClientConfig.CABundle)
			renewals += r.renewalsOf(kindServing)
		}
		require.InDelta(t, float64(count(c.writes(), "create secrets", "update secrets")), renewals, 0, "each issue was one write")
	}
	race()
	require.Equal(t, 1, count(c.writes(), "create secrets"))
	clock.SetTime(renewal(replicas[0].use.load().leaf))
	race()
	require.Equal(t, 1, count(c.writes(), "update secrets"))
}

func count(list []string, of ...string) int {
	n := 0
	for _, l := range list {
		for _, o := range of {
			if l == o {
				n++
			}
		}
	}
	return n
}

func TestLostRaceForTheSecretIsReadAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	clock := clocktesting.NewFakeClock(start())
	first := newReplica(t, c, clock, nil)
	// The second replica has found no Secret when the first creates it.
	var once sync.Once
	second := newReplica(t, c, clock, func(a k8stesting.Action) error {
		if a.Matches("create", "secrets") {
			once.Do(func() { require.NoError(t, first.once(t.Context())) })
		}
		return nil
	})
	require.NoError(t, second.once(t.Context()))
	require.True(t, second.use.load().same(first.use.load()))
	require.Zero(t, second.renewalsOf(kindCA))
	require.Equal(t, 1, count(c.writes(), "create secrets"))
}

func TestOlderBundleDoesNotReplaceANewerOne(t *testing.T) {
	t.Parallel()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	clock := clocktesting.NewFakeClock(start())
	first := newReplica(t, c, clock, nil)
	require.NoError(t, first.once(t.Context()))
	// A bundle is emptied; the second replica is about to write the bundle that it read
	// when the first adds a CA.
	v := c.validating(t)
	v.Webhooks[0].ClientConfig.CABundle = nil
	_, err := c.client(nil).AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), v, metav1.UpdateOptions{})
	require.NoError(t, err)
	var once sync.Once
	second := newReplica(t, c, clock, func(a k8stesting.Action) error {
		if a.Matches("patch", "validatingwebhookconfigurations") {
			once.Do(func() {
				c.edit(t, func(s *corev1.Secret) { s.Annotations = map[string]string{annotationRollOver: ""} })
				require.NoError(t, first.once(t.Context()))
			})
		}
		return nil
	})
	before := len(c.writes())
	require.NoError(t, second.once(t.Context()))
	bundle := c.secret(t).Data[dataBundle]
	require.Len(t, parseState(c.secret(t)).bundle, 2)
	require.Equal(t, bundle, c.validating(t).Webhooks[0].ClientConfig.CABundle)
	require.Equal(t, 2, count(c.writes()[before:], "patch validatingwebhookconfigurations"), "both by the first replica")
}

func TestEditedConfigurationsAreRestored(t *testing.T) {
	t.Parallel()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	r := newReplica(t, c, clocktesting.NewFakeClock(start()), nil)
	require.NoError(t, r.once(t.Context()))
	want := c.mutating(t).Webhooks
	m := c.mutating(t)
	m.Webhooks[0].ClientConfig = serviceConfig("/mutate")
	_, err := c.client(nil).AdmissionregistrationV1().MutatingWebhookConfigurations().Update(t.Context(), m, metav1.UpdateOptions{})
	require.NoError(t, err)
	before := len(c.writes())
	require.NoError(t, r.once(t.Context()))
	require.Equal(t, []string{"patch mutatingwebhookconfigurations"}, c.writes()[before:])
	require.Equal(t, want, c.mutating(t).Webhooks)
}

func TestURLReplacesTheService(t *testing.T) {
	t.Parallel()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	r := newReplica(t, c, clocktesting.NewFakeClock(start()), nil, func(o *Options) {
		o.URL, o.Hosts = "https://127.0.0.1:9443", nil
	})
	require.NoError(t, r.once(t.Context()))
	require.Equal(t, "https://127.0.0.1:9443/validate/nodes", *c.validating(t).Webhooks[1].ClientConfig.URL)
	require.Equal(t, "https://127.0.0.1:9443/mutate", *c.mutating(t).Webhooks[0].ClientConfig.URL)
	require.Nil(t, c.mutating(t).Webhooks[0].ClientConfig.Service)
	require.NoError(t, r.use.load().leaf.VerifyHostname("127.0.0.1"))
	require.Equal(t, "platform", c.mutating(t).Annotations["team"])
}

func TestMissingConfigurations(t *testing.T) {
	t.Parallel()
	c := newCluster(t, mutatingConfiguration())
	r := newReplica(t, c, clocktesting.NewFakeClock(start()), nil)
	require.NoError(t, r.once(t.Context()))
	require.NoError(t, r.Ready(nil))
	require.Positive(t, r.errorsOf(reasonConfigurationMissing))
	require.NoError(t, c.tracker.Add(c.stamped(validatingConfiguration())))
	require.NoError(t, r.once(t.Context()))
	require.Equal(t, c.secret(t).Data[dataBundle], c.validating(t).Webhooks[1].ClientConfig.CABundle)
}

func TestF10WithoutPermissionForTheConfigurations(t *testing.T) {
	t.Parallel()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	clock := clocktesting.NewFakeClock(start())
	denied := true
	r := newReplica(t, c, clock, func(a k8stesting.Action) error {
		if denied && a.Matches("patch", "validatingwebhookconfigurations") {
			return forbidden("validatingwebhookconfigurations")
		}
		return nil
	})
	err := r.once(t.Context())
	require.True(t, apierrors.IsForbidden(err))
	require.ErrorContains(t, err, "patch ValidatingWebhookConfiguration/tollgate")
	require.ErrorIs(t, r.Ready(nil), errNotPublished, "nobody could verify it")
	require.InDelta(t, 1, r.errorsOf(reasonConfigurationWrite), 0)

	denied = false
	require.NoError(t, r.once(t.Context()))
	require.NoError(t, r.Ready(nil))

	t.Run("a renewal by a CA that is known already goes on without it", func(t *testing.T) {
		denied = true
		v := c.validating(t)
		v.Webhooks[0].ClientConfig.CABundle = nil
		_, err := c.client(nil).AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), v, metav1.UpdateOptions{})
		require.NoError(t, err)
		old := r.use.load()
		clock.SetTime(renewal(old.leaf))
		require.Error(t, r.once(t.Context()))
		require.False(t, r.use.load().same(old))
		require.NoError(t, r.Ready(nil))
	})
	t.Run("F04 a CA that is not known does not get to sign", func(t *testing.T) {
		c.edit(t, func(s *corev1.Secret) { s.Annotations = map[string]string{annotationRollOver: ""} })
		require.Error(t, r.once(t.Context()))
		clock.Step(2 * defaultBundleDelay)
		old := r.use.load()
		require.Error(t, r.once(t.Context()))
		require.True(t, r.use.load().same(old))
		require.NotNil(t, parseState(c.secret(t)).next)

		denied = false
		require.NoError(t, r.once(t.Context()))
		require.True(t, r.use.load().same(old), "the delay starts when it is known")
		clock.Step(defaultBundleDelay)
		require.NoError(t, r.once(t.Context()))
		require.False(t, r.use.load().same(old))
		require.Nil(t, parseState(c.secret(t)).next)
		require.NotContains(t, c.secret(t).Annotations, annotationRollOver)
	})
}

func TestF04ReplicaWaitsForTheBundle(t *testing.T) {
	t.Parallel()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	clock := clocktesting.NewFakeClock(start())
	first := newReplica(t, c, clock, nil)
	require.NoError(t, first.once(t.Context()))
	cutOff := true
	second := newReplica(t, c, clock, func(a k8stesting.Action) error {
		if cutOff && a.GetResource().Resource != "secrets" {
			return errors.New("connection refused")
		}
		return nil
	})
	cutOff = false
	require.NoError(t, second.once(t.Context()))
	cutOff = true
	old := second.use.load()

	// The Secret of another installation replaces this one, as from a backup.
	strange := secretOf(t, freshState(t, clock.Now()))
	c.edit(t, func(s *corev1.Secret) { s.Data = strange.Data })
	require.Error(t, second.once(t.Context()))
	require.True(t, second.use.load().same(old), "it cannot know whether the new CA is trusted")
	require.NoError(t, first.once(t.Context()))
	cutOff = false
	require.NoError(t, second.once(t.Context()))
	second.requireServes(t, c.validating(t).Webhooks[0].ClientConfig.CABundle)
}

func TestDeletedSecretIsRestored(t *testing.T) {
	t.Parallel()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	r := newReplica(t, c, clocktesting.NewFakeClock(start()), nil)
	require.NoError(t, r.once(t.Context()))
	data := c.secret(t).Data
	require.NoError(t, c.client(nil).CoreV1().Secrets(testNamespace).Delete(t.Context(), testSecret, metav1.DeleteOptions{}))
	require.NoError(t, r.once(t.Context()))
	restored := parseState(c.secret(t))
	require.Empty(t, restored.problems)
	require.Equal(t, data[dataBundle], c.secret(t).Data[dataBundle])
	require.True(t, restored.serving.same(r.use.load()))
	require.InDelta(t, 1, r.renewalsOf(kindCA), 0)
}

func TestF03ExpiryIsToldAndMeasured(t *testing.T) {
	t.Parallel()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	clock := clocktesting.NewFakeClock(start())
	down := false
	r := newReplica(t, c, clock, func(k8stesting.Action) error {
		if down {
			return errors.New("connection refused")
		}
		return nil
	})
	require.NoError(t, r.once(t.Context()))
	leaf := r.use.load().leaf
	require.InDelta(t, float64(leaf.NotAfter.Unix()), testutil.ToFloat64(r.metrics.expiry.WithLabelValues("serving")), 0)
	require.InDelta(t, float64(start().Add(defaultCALifetime).Unix()), testutil.ToFloat64(r.metrics.expiry.WithLabelValues("ca")), 0)

	down = true
	retry := r.newRetry()
	clock.SetTime(leaf.NotAfter.Add(-1))
	r.refresh(quiet(t), &retry)
	require.NoError(t, r.Ready(nil))
	require.Zero(t, r.errorsOf(reasonExpired))
	clock.SetTime(leaf.NotAfter)
	r.refresh(quiet(t), &retry)
	require.ErrorContains(t, r.Ready(nil), "serving certificate expired at 2031-03-31T09:00:00Z")
	require.ErrorContains(t, r.Ready(nil), "connection refused")
	require.InDelta(t, 1, r.errorsOf(reasonExpired), 0)
	require.InDelta(t, 2, r.errorsOf(reasonSecretRead), 0)

	down = false
	r.refresh(quiet(t), &retry)
	require.NoError(t, r.Ready(nil))
	r.requireServes(t, c.validating(t).Webhooks[0].ClientConfig.CABundle)
}

func TestRefreshEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := newReplica(t, c, clocktesting.NewFakeClock(start()), func(k8stesting.Action) error {
		cancel()
		return ctx.Err()
	})
	require.ErrorIs(t, r.once(ctx), context.Canceled)
	require.Zero(t, r.errorsOf(reasonSecretRead), "the end of the process is no problem")
	require.Zero(t, r.errorsOf(reasonConfigurationRead))
}
