package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestF04Decade simulates ten years with replicas that are cut off, restart and race, with
// configurations that cannot be written, are emptied or lose their bundle, and with a
// Secret that gets lost or is restored from backups. At every instant each replica must
// serve a certificate that has not expired and that verifies against any bundle that an
// API server may still have: those that the configurations held within the last
// bundleDelay.
func TestF04Decade(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("F04 seed %d", seed), func(t *testing.T) {
			t.Parallel()
			newDecade(t, seed).live(10 * 365 * day)
		})
	}
}

type decade struct {
	t        *testing.T
	random   *rand.Rand
	cluster  *cluster
	clock    *clocktesting.FakeClock
	options  Options
	replicas []*replica
	// cutOff and readOnly are the times until which a replica reaches nothing, or cannot
	// write configurations.
	cutOff   []time.Time
	readOnly []time.Time
	// reached tells whether a replica was not cut off at its last refresh.
	reached []bool
	// bundles are the bundles that API servers may have, newest last.
	bundles []heldBundle
	// copied is a backup of the Secret, and restored the number of its restores.
	copied   *corev1.Secret
	copiedAt time.Time
	restored int
	// verified caches checked signatures.
	verified map[string]bool
}

type heldBundle struct {
	pem   string
	certs []*x509.Certificate
	// until is the time at which the configurations got the next one.
	until time.Time
}

func newDecade(t *testing.T, seed uint64) *decade {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 5))
	d := &decade{
		t: t, random: random, clock: clocktesting.NewFakeClock(start()), verified: map[string]bool{},
		cluster:  newCluster(t, validatingConfiguration(), mutatingConfiguration()),
		cutOff:   make([]time.Time, 3),
		readOnly: make([]time.Time, 3),
		reached:  make([]bool, 3),
	}
	d.options.CALifetime = time.Duration(120+random.IntN(400)) * day
	d.options.ServingLifetime = d.options.CALifetime / time.Duration(3+random.IntN(8))
	d.options.bundleDelay = time.Duration(1+random.IntN(48)) * time.Hour
	d.cluster.observe = d.look
	for i := range d.cutOff {
		d.replicas = append(d.replicas, d.newReplica(i))
	}
	return d
}

func (d *decade) newReplica(i int) *replica {
	return newReplica(d.t, d.cluster, d.clock, func(a k8stesting.Action) error {
		now := d.clock.Now()
		if now.Before(d.cutOff[i]) || now.Before(d.readOnly[i]) && a.GetVerb() == "patch" {
			return errors.New("connection refused")
		}
		return nil
	}, func(o *Options) {
		o.CALifetime, o.ServingLifetime, o.bundleDelay = d.options.CALifetime, d.options.ServingLifetime, d.options.bundleDelay
	})
}

func (d *decade) live(span time.Duration) {
	for _, r := range d.replicas {
		require.NoError(d.t, r.once(d.t.Context()))
	}
	d.check()
	end := d.clock.Now().Add(span)
	for d.clock.Now().Before(end) {
		d.clock.Step(d.pause())
		d.check()
		for _, i := range d.random.Perm(len(d.replicas)) {
			d.trouble(i)
			d.reached[i] = !d.clock.Now().Before(d.cutOff[i])
			// A replica that is cut off returns an error; the test checks what it serves.
			_ = d.replicas[i].once(d.t.Context())
			d.check()
		}
	}
	require.GreaterOrEqual(d.t, len(d.bundles), 10, "CAs were rolled over")
	require.Positive(d.t, d.restored)
}

// pause is short as often as long, so that events within minutes happen too.
func (d *decade) pause() time.Duration {
	if d.random.IntN(2) == 0 {
		return time.Duration(1+d.random.IntN(90)) * time.Minute
	}
	return time.Duration(1+d.random.IntN(60)) * time.Hour
}

// trouble starts an outage now and then. With the pauses, none is longer than the rest of
// a certificate's lifetime at its renewal, and between two of them a replica refreshes.
func (d *decade) trouble(i int) {
	now := d.clock.Now()
	length := time.Duration(d.random.Int64N(int64(d.options.ServingLifetime/4 - 2*day)))
	switch n := d.random.IntN(1000); {
	case n < 10 && d.reached[i]:
		d.cutOff[i] = now.Add(length)
	case n < 20:
		d.readOnly[i] = now.Add(length)
	case n < 30 && now.After(d.cutOff[i]) && now.After(d.readOnly[i]):
		d.replicas[i] = d.newReplica(i)
		require.NoError(d.t, d.replicas[i].once(d.t.Context()))
	case n < 32:
		// Replicas with a remembered state refresh before restarted ones.
		require.NoError(d.t, d.cluster.client(nil).CoreV1().Secrets(testNamespace).Delete(d.t.Context(), testSecret, metav1.DeleteOptions{}))
		d.cutOff[i] = now
		require.NotEmpty(d.t, d.writesOf(i))
	case n < 40:
		d.backup(now)
	}
}

func (d *decade) writesOf(i int) []string {
	before := len(d.cluster.writes())
	_ = d.replicas[i].once(d.t.Context())
	return d.cluster.writes()[before:]
}

// backup restores an earlier version of the Secret, and copies it for the next time. No CA
// expires in between.
func (d *decade) backup(now time.Time) {
	secret := d.cluster.secret(d.t)
	if d.copied != nil && now.Before(d.copiedAt.Add(d.options.CALifetime/4)) {
		d.cluster.edit(d.t, func(s *corev1.Secret) { s.Data, s.Annotations = d.copied.Data, d.copied.Annotations })
		d.restored++
	}
	d.copied, d.copiedAt = secret, now
}

// look records a new bundle of a configuration.
func (d *decade) look(object runtime.Object) {
	var bundles [][]byte
	switch o := object.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		bundles = append(bundles, o.Webhooks[0].ClientConfig.CABundle, o.Webhooks[1].ClientConfig.CABundle)
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		bundles = append(bundles, o.Webhooks[0].ClientConfig.CABundle)
	}
	for _, data := range bundles {
		last := len(d.bundles) - 1
		if last >= 0 && d.bundles[last].pem == string(data) {
			continue
		}
		certs, err := parseCertificates(data)
		require.NoError(d.t, err)
		if last >= 0 {
			d.bundles[last].until = d.clock.Now()
		}
		d.bundles = append(d.bundles, heldBundle{pem: string(data), certs: certs})
	}
}

func (d *decade) check() {
	now := d.clock.Now()
	for i, r := range d.replicas {
		p := r.use.load()
		require.NotNil(d.t, p)
		require.NoError(d.t, r.Ready(nil), "replica %d at %s", i, now)
		for _, held := range slices.Backward(d.bundles) {
			if !held.until.IsZero() && !now.Before(held.until.Add(d.options.bundleDelay)) {
				break
			}
			require.True(d.t, d.verifies(p, held, now), "replica %d at %s against the bundle held until %s", i, now, held.until)
		}
	}
}

func (d *decade) verifies(p *pair, held heldBundle, now time.Time) bool {
	for _, ca := range held.certs {
		key := string(p.leaf.Raw) + string(ca.Raw)
		signed, known := d.verified[key]
		if !known {
			signed = p.leaf.CheckSignatureFrom(ca) == nil
			d.verified[key] = signed
		}
		if signed && !now.Before(ca.NotBefore) && !expired(ca, now) && !now.Before(p.leaf.NotBefore) && !expired(p.leaf, now) {
			return true
		}
	}
	return false
}
