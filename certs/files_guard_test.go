package certs

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stesting "k8s.io/client-go/testing"
	certutil "k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"
)

// follower is a replica with a directory, while the test injects bundles.
type follower struct {
	*replica
	cluster   *cluster
	directory string
}

func newFollower(t *testing.T, f fault) *follower {
	t.Helper()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	metrics := NewMetrics(prometheus.NewPedanticRegistry())
	clock := clocktesting.NewFakeClock(start())
	directory := t.TempDir()
	m, err := New(Options{
		Directory: directory, Client: c.client(f), Clock: clock, Metrics: metrics,
		Configurations: testConfig,
	})
	require.NoError(t, err)
	return &follower{replica: &replica{Manager: m, clock: clock, metrics: metrics}, cluster: c, directory: directory}
}

// inject writes the CAs into one of the three webhooks, or into all if the index is
// negative.
func (f *follower) inject(t *testing.T, webhook int, states ...*state) {
	t.Helper()
	var bundle []byte
	for _, s := range states {
		encoded, err := certutil.EncodeCertificates(s.bundle...)
		require.NoError(t, err)
		bundle = append(bundle, encoded...)
	}
	api := f.cluster.client(nil).AdmissionregistrationV1()
	validating, mutating := f.cluster.validating(t), f.cluster.mutating(t)
	for i := range validating.Webhooks {
		if webhook < 0 || webhook == i {
			validating.Webhooks[i].ClientConfig.CABundle = bundle
		}
	}
	if webhook < 0 || webhook == len(validating.Webhooks) {
		mutating.Webhooks[0].ClientConfig.CABundle = bundle
	}
	_, err := api.ValidatingWebhookConfigurations().Update(t.Context(), validating, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = api.MutatingWebhookConfigurations().Update(t.Context(), mutating, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// verified reports for each webhook whether it verifies the served certificate.
func (f *follower) verified(t *testing.T) []bool {
	t.Helper()
	var all []bool
	for _, webhook := range f.cluster.validating(t).Webhooks {
		all = append(all, f.verify(webhook.ClientConfig.CABundle) == nil)
	}
	return append(all, f.verify(f.cluster.mutating(t).Webhooks[0].ClientConfig.CABundle) == nil)
}

func TestF04FilesOfAnotherCA(t *testing.T) {
	t.Parallel()
	now := start()
	old, next := freshState(t, now), freshState(t, now)
	tests := map[string]struct {
		bundle []*state
		after  time.Duration
		serves *state
		why    float64
	}{
		"F04 wait while the bundles hold only the old CA": {bundle: []*state{old}, after: time.Hour, serves: old, why: 2},
		"F04 wait a little once the bundles hold both":    {bundle: []*state{old, next}, after: filesDelay - time.Second, serves: old},
		"F04 are used half a minute after the bundles do": {bundle: []*state{old, next}, after: filesDelay, serves: next},
		"are used at once if the old CA was taken out":    {bundle: []*state{next}, serves: next},
		"are used at once if nothing verifies either":     {bundle: nil, serves: next},
		"F03 are used before the one in use expires":      {bundle: []*state{old}, after: defaultServingLifetime - defaultFilesRecheck, serves: next, why: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFollower(t, nil)
			f.inject(t, -1, old)
			writeFiles(t, f.directory, old.serving)
			require.NoError(t, f.once(t.Context()))
			f.inject(t, -1, tt.bundle...)
			writeFiles(t, f.directory, next.serving)
			for _, at := range []time.Duration{0, tt.after} {
				f.clock.SetTime(now.Add(at))
				err := f.once(t.Context())
				require.True(t, err == nil || errors.Is(err, errUntrusted), "%v", err)
			}
			require.True(t, f.use.load().same(tt.serves.serving))
			require.NoError(t, f.Ready(nil))
			require.InDelta(t, tt.why, f.errorsOf(reasonFilesUntrusted), 0)
			require.Empty(t, slices.DeleteFunc(f.cluster.writes(), func(w string) bool {
				return w == "update validatingwebhookconfigurations" || w == "update mutatingwebhookconfigurations" // the test's
			}))
		})
	}
}

func TestF04ARenewalByTheSameCAReadsNothing(t *testing.T) {
	t.Parallel()
	var answer error
	f := newFollower(t, func(k8stesting.Action) error { return answer })
	first := freshState(t, start())
	renewed := mustApply(t, stepIssue, first, start())
	for _, s := range []*state{first, renewed} {
		writeFiles(t, f.directory, s.serving)
		require.NoError(t, f.once(t.Context()))
		require.True(t, f.use.load().same(s.serving))
		answer = errors.New("nobody is to be asked")
	}
}

func TestF04BundlesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		answer error
		used   bool
	}{
		"F04 an API server that does not answer is asked again": {answer: apierrors.NewServiceUnavailable("away")},
		"a missing permission lets the files be used":           {answer: forbidden("validatingwebhookconfigurations"), used: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var answer error
			f := newFollower(t, func(k8stesting.Action) error { return answer })
			old, next := freshState(t, start()), freshState(t, start())
			writeFiles(t, f.directory, old.serving)
			require.NoError(t, f.once(t.Context()))
			answer = tt.answer
			writeFiles(t, f.directory, next.serving)
			require.Equal(t, tt.used, f.once(t.Context()) == nil)
			require.Equal(t, tt.used, f.use.load().same(next.serving))
		})
	}
}

// TestF04NoWebhookLosesItsCertificate adds, injects and removes CAs at random: a webhook
// that verifies the certificate before a refresh verifies it after.
func TestF04NoWebhookLosesItsCertificate(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 0))
		f := newFollower(t, nil)
		states := []*state{freshState(t, start()), freshState(t, start()), freshState(t, start())}
		for step := range 40 {
			switch random.IntN(4) {
			case 0:
				writeFiles(t, f.directory, states[random.IntN(len(states))].serving)
			case 1, 2:
				some := slices.DeleteFunc(slices.Clone(states), func(*state) bool { return random.IntN(3) == 0 })
				f.inject(t, random.IntN(4)-1, some...)
			case 3:
				f.clock.Step(time.Duration(random.IntN(40)) * time.Second)
			}
			if f.use.load() == nil {
				_ = f.once(t.Context())
				continue
			}
			before := f.verified(t)
			_ = f.once(t.Context()) // a certificate that waits is an error
			for i, verified := range f.verified(t) {
				require.False(t, before[i] && !verified, "seed %d, step %d, webhook %d", seed, step, i)
			}
		}
	}
}

func TestF04TheWaitIsLookedAtAgainInTime(t *testing.T) {
	t.Parallel()
	f := newFollower(t, nil)
	old, next := freshState(t, start()), freshState(t, start())
	f.inject(t, -1, old, next)
	writeFiles(t, f.directory, old.serving)
	retry := f.newRetry()
	f.refresh(quiet(t), &retry)
	writeFiles(t, f.directory, next.serving)
	var waited time.Duration
	for !f.use.load().same(next.serving) {
		pause := f.refresh(quiet(t), &retry)
		f.clock.Step(pause)
		waited += pause
		require.LessOrEqual(t, waited, 2*filesDelay)
	}
	require.Zero(t, f.errorsOf(reasonFilesUntrusted))
}

func TestF04AReplicaThatStartsIsReadyOnceItsCertificateIsVerified(t *testing.T) {
	t.Parallel()
	ours, other := freshState(t, start()), freshState(t, start())
	tests := map[string]struct {
		inject func(t *testing.T, f *follower)
		answer error
		ready  bool
	}{
		"no webhook has a bundle":                {inject: func(*testing.T, *follower) {}, ready: true},
		"all bundles are of another CA":          {inject: func(t *testing.T, f *follower) { t.Helper(); f.inject(t, -1, other) }},
		"one of the bundles verifies it":         {inject: func(t *testing.T, f *follower) { t.Helper(); f.inject(t, -1, other); f.inject(t, 2, ours) }, ready: true},
		"the bundles may not be read":            {inject: func(*testing.T, *follower) {}, answer: forbidden("validatingwebhookconfigurations"), ready: true},
		"the bundles cannot be read for a while": {inject: func(*testing.T, *follower) {}, answer: apierrors.NewServiceUnavailable("away")},
	}
	for name, tt := range tests {
		t.Run("F04 "+name, func(t *testing.T) {
			t.Parallel()
			answer := tt.answer
			f := newFollower(t, func(k8stesting.Action) error { return answer })
			tt.inject(t, f)
			writeFiles(t, f.directory, ours.serving)
			require.Equal(t, tt.ready, f.once(t.Context()) == nil)
			require.Equal(t, tt.ready, f.Ready(nil) == nil)
			require.True(t, f.use.load().same(ours.serving), "it is served, for there is no other")

			answer = nil
			f.inject(t, -1, other, ours)
			require.NoError(t, f.once(t.Context()))
			require.NoError(t, f.Ready(nil))
			f.inject(t, -1, other)
			require.NoError(t, f.once(t.Context()))
			require.NoError(t, f.Ready(nil), "who was ready stays so")
			require.InDelta(t, 1, f.renewalsOf(kindServing), 0)
		})
	}
}

func TestF04ABundleThatCannotBeDecodedIsNamed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		bundle []byte
		want   string
	}{
		"too large":      {megabyteOfPEM(), "are more than the 65536 allowed"},
		"a broken block": {[]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "malformed certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, other := freshState(t, start()), freshState(t, start())
			f := newFollower(t, nil)
			f.inject(t, -1, other)
			validating := f.cluster.validating(t)
			validating.Webhooks[0].ClientConfig.CABundle = tt.bundle
			_, err := f.cluster.client(nil).AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), validating, metav1.UpdateOptions{})
			require.NoError(t, err)
			writeFiles(t, f.directory, ours.serving)
			retry := f.newRetry()
			f.refresh(quiet(t), &retry)
			err = f.Ready(nil)
			require.ErrorIs(t, err, errUnverified)
			require.ErrorContains(t, err, "caBundle of webhook "+validating.Webhooks[0].Name)
			require.ErrorContains(t, err, tt.want)
			require.Equal(t, 1, strings.Count(err.Error(), errUnverified.Error()), "said once: %s", err)
		})
	}
}

func TestF04ReadinessSaysWhatIsWrongNow(t *testing.T) {
	t.Parallel()
	ours := freshState(t, start())
	f := newFollower(t, nil)
	f.inject(t, -1, freshState(t, start()))
	validating := f.cluster.validating(t)
	validating.Webhooks[0].ClientConfig.CABundle = megabyteOfPEM()
	_, err := f.cluster.client(nil).AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), validating, metav1.UpdateOptions{})
	require.NoError(t, err)
	retry := f.newRetry()
	for range 2 {
		writeFiles(t, f.directory, ours.serving)
		f.refresh(quiet(t), &retry)
		require.ErrorContains(t, f.Ready(nil), "caBundle of webhook")
		require.NotContains(t, f.Ready(nil).Error(), "load certificate")

		require.NoError(t, os.Remove(filepath.Join(f.directory, corev1.TLSCertKey)))
		f.refresh(quiet(t), &retry)
		require.ErrorContains(t, f.Ready(nil), "load certificate")
		require.NotContains(t, f.Ready(nil).Error(), "caBundle of webhook")
	}
}
