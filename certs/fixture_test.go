package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// start is the time at which every test begins.
func start() time.Time {
	return time.Date(2031, time.March, 1, 9, 0, 0, 0, time.UTC)
}

const (
	defaultCALifetime      = 365 * day
	defaultServingLifetime = 30 * day
)

// testCA returns the configuration of a CA with the lifetimes of an installation.
func testCA() OwnCA {
	return OwnCA{
		Namespace: testNamespace, SecretName: testSecret, Hosts: []string{testHost},
		CALifetime: defaultCALifetime, ServingLifetime: defaultServingLifetime,
	}
}

func testOptions() *Options {
	o := &Options{OwnCA: testCA()}
	o.setDefaults()
	return o
}

// freshState returns the state that a replica creates at now.
func freshState(t *testing.T, now time.Time) *state {
	t.Helper()
	return mustApply(t, stepCreate, &state{}, now)
}

func mustApply(t *testing.T, a step, s *state, now time.Time) *state {
	t.Helper()
	after, _, err := apply(a, s, now, testOptions(), seen{})
	require.NoError(t, err)
	return after
}

// secretOf returns the Secret that a replica writes for a state.
func secretOf(t *testing.T, s *state) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: testNamespace, Name: testSecret, Labels: map[string]string{labelOwned: labelOwnedValue},
	}}
	s.writeTo(secret)
	return secret
}

// replica is a Manager whose refreshes the test calls by hand.
type replica struct {
	*Manager
	clock    *clocktesting.FakeClock
	metrics  *Metrics
	registry *prometheus.Registry
}

func newReplica(t *testing.T, c *cluster, clock *clocktesting.FakeClock, f fault, change ...func(*Options)) *replica {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	metrics := NewMetrics(registry)
	o := Options{
		Client: c.client(f), Clock: clock, Metrics: metrics,
		OwnCA:          testCA(),
		Configurations: testConfig,
	}
	for _, f := range change {
		f(&o)
	}
	m, err := New(o)
	require.NoError(t, err)
	return &replica{Manager: m, clock: clock, metrics: metrics, registry: registry}
}

// once refreshes once, with the logger of ctx if there is one.
func (r *replica) once(ctx context.Context) error {
	if _, err := logr.FromContext(ctx); err != nil {
		ctx = logr.NewContext(ctx, logr.Discard())
	}
	_, err := r.source(ctx, r.clock.Now())
	return err
}

func (r *replica) errorsOf(why string) float64 {
	return testutil.ToFloat64(r.metrics.errors.WithLabelValues(why))
}

func (r *replica) renewalsOf(kind string) float64 {
	return testutil.ToFloat64(r.metrics.renewals.WithLabelValues(kind))
}

// requireServes fails unless a client that trusts bundle accepts what the
// replica serves.
func (r *replica) requireServes(t *testing.T, bundle []byte) {
	t.Helper()
	require.NoError(t, r.verify(bundle))
}

func (r *replica) verify(bundle []byte) error {
	served, err := r.GetCertificate(nil)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("bundle holds no certificate")
	}
	_, err = served.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: r.clock.Now(), DNSName: testHost,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

func quiet(t *testing.T) context.Context {
	t.Helper()
	return logr.NewContext(t.Context(), logr.Discard())
}
