package certs

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestF02BrokenSecretInUse(t *testing.T) {
	t.Parallel()
	tests := map[string]func(s *corev1.Secret, other *corev1.Secret){
		"F02 the key of another certificate": func(s, o *corev1.Secret) { s.Data[dataServingKey] = o.Data[dataServingKey] },
		"F02 half a certificate":             func(s, _ *corev1.Secret) { s.Data[dataServingCert] = s.Data[dataServingCert][:99] },
		"F02 an empty key":                   func(s, _ *corev1.Secret) { s.Data[dataServingKey] = nil },
		"F02 a CA key of garbage":            func(s, _ *corev1.Secret) { s.Data[dataCAKey] = []byte("garbage") },
		"F02 a bundle of garbage":            func(s, _ *corev1.Secret) { s.Data[dataBundle] = []byte("garbage") },
		"F05 a megabyte of PEM":              func(s, _ *corev1.Secret) { s.Data[dataServingCert] = megabyteOfPEM() },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
			clock := clocktesting.NewFakeClock(start())
			readOnly := false
			r := newReplica(t, c, clock, func(a k8stesting.Action) error {
				if readOnly && a.Matches("update", "secrets") {
					return forbidden("secrets")
				}
				return nil
			})
			require.NoError(t, r.once(t.Context()))
			old, bundle := r.use.load(), c.validating(t).Webhooks[0].ClientConfig.CABundle
			c.edit(t, func(s *corev1.Secret) { spoil(s, secretOf(t, freshState(t, clock.Now()))) })

			readOnly = true
			require.Error(t, r.once(t.Context()))
			require.Error(t, r.once(t.Context()))
			require.True(t, r.use.load().same(old), "the good pair stays")
			require.NoError(t, r.Ready(nil))
			require.InDelta(t, 2, r.errorsOf(reasonSecretInvalid), 0)
			r.requireServes(t, c.validating(t).Webhooks[0].ClientConfig.CABundle)

			readOnly = false
			require.NoError(t, r.once(t.Context()))
			require.Empty(t, parseState(c.secret(t)).problems, "it is repaired")
			r.requireServes(t, bundle)
			r.requireServes(t, c.validating(t).Webhooks[0].ClientConfig.CABundle)
		})
	}
}

func TestF02BrokenSecretAtStart(t *testing.T) {
	t.Parallel()
	garbage := map[string][]byte{dataServingCert: []byte("garbage"), dataServingKey: nil}
	whole := secretOf(t, freshState(t, start()))
	tests := map[string]struct {
		secret  *corev1.Secret
		refused bool
		written bool
	}{
		"F02 garbage in a Secret of ours is replaced": {
			secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labelOwned: labelOwnedValue}}, Data: garbage}, written: true,
		},
		"an empty Secret made for us is filled": {
			secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labelOwned: labelOwnedValue}}}, written: true,
		},
		"F02 garbage in a Secret of others is refused": {
			secret: &corev1.Secret{Data: garbage}, refused: true,
		},
		"an empty Secret of others is refused": {
			secret: &corev1.Secret{}, refused: true,
		},
		"a certificate of others without a CA key is refused": {
			secret: &corev1.Secret{Data: map[string][]byte{
				dataServingCert: whole.Data[dataServingCert], dataServingKey: whole.Data[dataServingKey], dataBundle: whole.Data[dataBundle],
			}},
			refused: true,
		},
		"a whole Secret that lost its label is used": {
			secret: &corev1.Secret{Data: whole.Data},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret := tt.secret.DeepCopy()
			secret.Namespace, secret.Name = testNamespace, testSecret
			c := newCluster(t, validatingConfiguration(), mutatingConfiguration(), secret)
			r := newReplica(t, c, clocktesting.NewFakeClock(start()), nil)
			err := r.once(t.Context())
			require.Equal(t, tt.written, count(c.writes(), "update secrets") > 0)
			if !tt.refused {
				require.NoError(t, err)
				require.NoError(t, r.Ready(nil))
				return
			}
			require.EqualError(t, err, "secret lacks the label tollgate.dev/certificates=own-ca and is left alone")
			require.Empty(t, c.writes())
			require.Error(t, r.Ready(nil))
			require.InDelta(t, 1, r.errorsOf(reasonSecretForeign), 0)
		})
	}
	t.Run("a Secret that lost its label is not renewed", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
		clock := clocktesting.NewFakeClock(start())
		r := newReplica(t, c, clock, nil)
		require.NoError(t, r.once(t.Context()))
		c.edit(t, func(s *corev1.Secret) { s.Labels = nil })
		clock.SetTime(renewal(r.use.load().leaf))
		require.ErrorIs(t, r.once(t.Context()), errForeign)
		require.NoError(t, r.Ready(nil))
		require.Equal(t, 1, count(c.writes(), "update secrets"), "the test's own")
	})
}
