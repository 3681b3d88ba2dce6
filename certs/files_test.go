package certs

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func newFilesReplica(t *testing.T, directory string, c clock.WithTicker) *replica {
	t.Helper()
	metrics := NewMetrics(prometheus.NewPedanticRegistry())
	m, err := New(Options{Directory: directory, Clock: c, Metrics: metrics})
	require.NoError(t, err)
	fakeClock, _ := c.(*clocktesting.FakeClock)
	return &replica{Manager: m, clock: fakeClock, metrics: metrics}
}

func writeFiles(t *testing.T, directory string, p *pair) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(directory, corev1.TLSCertKey), p.certPEM, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(directory, corev1.TLSPrivateKeyKey), p.keyPEM, 0o600))
}

func TestF02BrokenFiles(t *testing.T) {
	t.Parallel()
	now := start()
	old, other := freshState(t, now).serving, freshState(t, now).serving
	past := freshState(t, now.Add(-2*defaultServingLifetime)).serving
	tests := map[string]struct {
		cert, key []byte
		why       string
	}{
		"F02 a certificate half written":         {cert: other.certPEM[:len(other.certPEM)/2], key: other.keyPEM, why: reasonFilesInvalid},
		"F02 a key half written":                 {cert: other.certPEM, key: other.keyPEM[:20], why: reasonFilesInvalid},
		"F02 a new certificate with the old key": {cert: other.certPEM, key: old.keyPEM, why: reasonFilesInvalid},
		"F02 empty files":                        {cert: nil, key: nil, why: reasonFilesInvalid},
		"F02 garbage":                            {cert: []byte("garbage"), key: []byte("garbage"), why: reasonFilesInvalid},
		"F03 an expired certificate":             {cert: past.certPEM, key: past.keyPEM, why: reasonFilesInvalid},
		"F05 a megabyte of PEM":                  {cert: megabyteOfPEM(), key: other.keyPEM, why: reasonFilesInvalid},
		"F05 a megabyte for a key":               {cert: other.certPEM, key: megabyteOfPEM(), why: reasonFilesInvalid},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := t.TempDir()
			writeFiles(t, directory, &pair{certPEM: tt.cert, keyPEM: tt.key})
			r := newFilesReplica(t, directory, clocktesting.NewFakeClock(now))
			require.Error(t, r.once(t.Context()), "at the start")
			require.ErrorIs(t, r.Ready(nil), errNoCertificate)

			writeFiles(t, directory, old)
			require.NoError(t, r.once(t.Context()))
			require.NoError(t, r.Ready(nil))
			writeFiles(t, directory, &pair{certPEM: tt.cert, keyPEM: tt.key})
			require.Error(t, r.once(t.Context()), "while another is in use")
			require.True(t, r.use.load().same(old), "the good pair stays")
			require.NoError(t, r.Ready(nil))
			require.InDelta(t, 2, r.errorsOf(tt.why), 0)

			writeFiles(t, directory, other)
			require.NoError(t, r.once(t.Context()))
			require.True(t, r.use.load().same(other))
			require.InDelta(t, 2, r.renewalsOf(kindServing), 0)
		})
	}
}

func TestF05LargeFilesAreNotRead(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	writeFiles(t, directory, &pair{certPEM: megabyteOfPEM()})
	r := newFilesReplica(t, directory, clocktesting.NewFakeClock(start()))
	require.ErrorContains(t, r.once(t.Context()), "65537 bytes are more than the 65536 allowed")
}

func TestF02SymlinkSwap(t *testing.T) {
	t.Parallel()
	now := start()
	directory := t.TempDir()
	// The kubelet links files through ..data, which it swaps.
	swap := func(version string, p *pair) {
		require.NoError(t, os.Mkdir(filepath.Join(directory, version), 0o700))
		writeFiles(t, filepath.Join(directory, version), p)
		require.NoError(t, os.Symlink(version, filepath.Join(directory, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(directory, "..data_tmp"), filepath.Join(directory, "..data")))
	}
	first, second := freshState(t, now).serving, freshState(t, now).serving
	swap("..1", first)
	for _, name := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		require.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(directory, name)))
	}
	r := newFilesReplica(t, directory, clocktesting.NewFakeClock(now))
	require.NoError(t, r.once(t.Context()))
	require.True(t, r.use.load().same(first))
	swap("..2", second)
	require.NoError(t, r.once(t.Context()))
	require.True(t, r.use.load().same(second))

	require.NoError(t, os.Remove(filepath.Join(directory, "..data")))
	require.Error(t, r.once(t.Context()))
	require.True(t, r.use.load().same(second))
	require.InDelta(t, 1, r.errorsOf(reasonFilesRead), 0)
}

func TestF02SwapBetweenTheTwoFiles(t *testing.T) {
	t.Parallel()
	now := start()
	first, second := freshState(t, now).serving, freshState(t, now).serving
	directory := t.TempDir()
	r := newFilesReplica(t, directory, clocktesting.NewFakeClock(now))
	// The key is a pipe: a reader has read the certificate before, and then gets the key
	// of the next one.
	writeFiles(t, directory, first)
	require.NoError(t, os.Remove(filepath.Join(directory, corev1.TLSPrivateKeyKey)))
	mkfifo(t, filepath.Join(directory, corev1.TLSPrivateKeyKey))
	done := make(chan error, 1)
	go func() {
		pipe, err := os.OpenFile(filepath.Join(directory, corev1.TLSPrivateKeyKey), os.O_WRONLY, 0)
		if err != nil {
			done <- err
			return
		}
		next := filepath.Join(directory, "next")
		err = os.WriteFile(next, second.keyPEM, 0o600)
		if err == nil {
			err = os.Rename(next, filepath.Join(directory, corev1.TLSPrivateKeyKey))
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(directory, corev1.TLSCertKey), second.certPEM, 0o600)
		}
		if err == nil {
			_, err = pipe.Write(second.keyPEM)
		}
		done <- err
		_ = pipe.Close()
	}()
	require.NoError(t, r.once(t.Context()))
	require.NoError(t, <-done)
	require.True(t, r.use.load().same(second))
	require.Zero(t, r.errorsOf(reasonFilesInvalid), "a swap is no fault")
}

func TestF03FilesThatExpireInUse(t *testing.T) {
	t.Parallel()
	fakeClock := clocktesting.NewFakeClock(start())
	p := freshState(t, fakeClock.Now()).serving
	directory := t.TempDir()
	writeFiles(t, directory, p)
	r := newFilesReplica(t, directory, fakeClock)
	retry := r.newRetry()
	r.refresh(quiet(t), &retry)
	require.NoError(t, r.Ready(nil))
	require.InDelta(t, float64(p.leaf.NotAfter.Unix()), testutil.ToFloat64(r.metrics.expiry.WithLabelValues("serving")), 0)

	fakeClock.SetTime(p.leaf.NotAfter)
	r.refresh(quiet(t), &retry)
	require.ErrorContains(t, r.Ready(nil), "serving certificate expired")
	require.InDelta(t, 1, r.errorsOf(reasonExpired), 0)
	served, err := r.GetCertificate(nil)
	require.NoError(t, err)
	require.Equal(t, p.leaf, served.Leaf, "clients are told why")
}

func TestFilesAreFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		directory := t.TempDir()
		r := newFilesReplica(t, directory, clock.RealClock{})
		ctx, cancel := context.WithCancel(quiet(t))
		ended := make(chan error, 1)
		go func() { ended <- r.Start(ctx) }()
		synctest.Wait()
		require.Error(t, r.Ready(nil))
		p := freshState(t, time.Now()).serving
		writeFiles(t, directory, p)
		time.Sleep(2 * defaultFilesRecheck)
		synctest.Wait()
		require.True(t, r.use.load().same(p))

		p = freshState(t, time.Now()).serving
		writeFiles(t, directory, p)
		time.Sleep(defaultFilesRecheck)
		synctest.Wait()
		require.True(t, r.use.load().same(p))
		cancel()
		require.NoError(t, <-ended)
	})
}
