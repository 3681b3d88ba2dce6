package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestF01RotationUnderLoad rotates serving certificates and CAs while clients, like API
// servers with a slightly old bundle, open a connection for each request.
func TestF01RotationUnderLoad(t *testing.T) {
	t.Parallel()
	const clients, rotations = 8, 30
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	clock := clocktesting.NewFakeClock(start())
	r := newReplica(t, c, clock, nil)
	require.NoError(t, r.once(t.Context()))
	server := startServer(t, r.Manager)

	// The API servers get a bundle only shortly before the end of the delay.
	var known atomic.Pointer[[]byte]
	learn := func() { known.Store(new(c.validating(t).Webhooks[0].ClientConfig.CABundle)) }
	learn()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var failed, serials sync.Map
	var served [clients]atomic.Int64
	for i := range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				serial, err := request(ctx, server, *known.Load(), clock.Now)
				if err != nil {
					if ctx.Err() == nil {
						failed.Store(i, err)
					}
					return
				}
				serials.Store(serial, true)
				served[i].Add(1)
			}
		})
	}
	failures := func() (errs []any) {
		failed.Range(func(_, err any) bool { errs = append(errs, err); return true })
		return errs
	}
	// progress waits until each client has finished its request. A handshake thus spans at
	// most one step of the clock, as in real time.
	progress := func() {
		var targets [clients]int64
		for i := range served {
			targets[i] = served[i].Load() + 2
		}
		require.Eventually(t, func() bool {
			for i := range served {
				if served[i].Load() < targets[i] {
					return len(failures()) > 0
				}
			}
			return true
		}, time.Minute, time.Millisecond)
		require.Empty(t, failures())
	}
	for n := range rotations {
		if n%3 == 0 {
			c.edit(t, func(s *corev1.Secret) { s.Annotations = map[string]string{annotationRollOver: ""} })
			require.NoError(t, r.once(t.Context()))
			clock.Step(defaultBundleDelay - time.Second)
			learn()
			progress()
			clock.Step(time.Second)
		} else {
			clock.SetTime(renewal(r.use.load().leaf))
		}
		old := r.use.load()
		require.NoError(t, r.once(t.Context()))
		require.False(t, r.use.load().same(old))
		progress()
	}
	stop()
	all.Wait()
	require.Empty(t, failures(), "0 failed handshakes")
	seen := 0
	serials.Range(func(any, any) bool { seen++; return true })
	require.Equal(t, rotations+1, seen, "each certificate was met by a client")
}

// TestF01OpenConnectionsOutliveRotation keeps one connection over rotations.
func TestF01OpenConnectionsOutliveRotation(t *testing.T) {
	t.Parallel()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	clock := clocktesting.NewFakeClock(start())
	r := newReplica(t, c, clock, nil)
	require.NoError(t, r.once(t.Context()))
	server := startServer(t, r.Manager)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: clientConfig(c.validating(t).Webhooks[0].ClientConfig.CABundle, clock.Now),
	}}
	defer client.CloseIdleConnections()
	var serials []string
	for range 3 {
		serial, err := get(t.Context(), client, server)
		require.NoError(t, err)
		serials = append(serials, serial)
		clock.SetTime(renewal(r.use.load().leaf))
		require.NoError(t, r.once(t.Context()))
	}
	require.Equal(t, serials[0], serials[2])
	require.NotEqual(t, serials[0], r.use.load().leaf.SerialNumber.String())
}

func TestA10Handshakes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	clock := clocktesting.NewFakeClock(start())
	r := newReplica(t, c, clock, nil)
	server := startServer(t, r.Manager)
	bundle := func() []byte { return c.validating(t).Webhooks[0].ClientConfig.CABundle }
	dial := func(change func(*tls.Config)) error {
		config := clientConfig(bundle(), clock.Now)
		change(config)
		dialer := tls.Dialer{Config: config}
		conn, err := dialer.DialContext(t.Context(), "tcp", server)
		if err == nil {
			return conn.Close()
		}
		return err
	}
	require.Error(t, dial(func(*tls.Config) {}), "there is no certificate yet")
	require.NoError(t, r.once(t.Context()))

	require.NoError(t, dial(func(*tls.Config) {}))
	require.NoError(t, dial(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }))
	require.ErrorContains(t, dial(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }), "protocol version not supported")
	unchecked := func(name string) func(*tls.Config) {
		return func(c *tls.Config) { c.ServerName, c.InsecureSkipVerify = name, true }
	}
	require.NoError(t, dial(unchecked("")), "no SNI")
	require.NoError(t, dial(unchecked("elsewhere.example.com")), "another SNI")

	plain, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server)
	require.NoError(t, err)
	_, err = plain.Write([]byte("GET / HTTP/1.1\r\n\r\n garbage"))
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, plain)
	require.NoError(t, err, "the server closes")
	require.NoError(t, plain.Close())
	require.NoError(t, dial(func(*tls.Config) {}), "and goes on")
}

func TestA10TLSConfigRaisesTheMinimumVersion(t *testing.T) {
	t.Parallel()
	r := newReplica(t, newCluster(t), clocktesting.NewFakeClock(start()), nil)
	for given, want := range map[uint16]uint16{
		0:                tls.VersionTLS12,
		tls.VersionTLS10: tls.VersionTLS12,
		tls.VersionTLS13: tls.VersionTLS13,
	} {
		config := &tls.Config{MinVersion: given}
		r.TLSConfig(config)
		require.Equal(t, want, config.MinVersion)
	}
}

// startServer serves with the certificates of m and returns its address.
func startServer(t *testing.T, m *Manager) string {
	t.Helper()
	config := &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
	m.TLSConfig(config)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	}))
	require.NoError(t, server.Listener.Close())
	server.Listener = listener
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return listener.Addr().String()
}

func clientConfig(bundle []byte, now func() time.Time) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	return &tls.Config{RootCAs: roots, ServerName: testHost, Time: now}
}

// request sends one request on a new connection and returns the serial number of the
// served certificate.
func request(ctx context.Context, address string, bundle []byte, now func() time.Time) (string, error) {
	transport := &http.Transport{TLSClientConfig: clientConfig(bundle, now), DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	return get(ctx, &http.Client{Transport: transport}, address)
}

func get(ctx context.Context, client *http.Client, address string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.TLS.PeerCertificates[0].SerialNumber.String(), err
}
