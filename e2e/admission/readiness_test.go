package admission

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// holdingProxy passes on what it is sent to the API server, except that it holds
// lists and watches of one resource until it is told to let go.
type holdingProxy struct {
	server

	held atomic.Int32
	free chan struct{}
}

// newHoldingProxy starts a proxy that holds what ends in the path.
func newHoldingProxy(t *testing.T, path string) *holdingProxy {
	t.Helper()
	config := shared.RESTConfig()
	target, err := url.Parse(config.Host)
	require.NoError(t, err)
	// The proxy trusts the API server, and is nobody itself: the caller's token
	// says who asks.
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(config))
	require.NoError(t, err)
	pass := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // who asks ends in the middle of it
	}
	p := &holdingProxy{free: make(chan struct{})}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, path) {
			p.held.Add(1)
			select {
			case <-p.free:
			case <-r.Context().Done():
				return
			}
		}
		pass.ServeHTTP(w, r)
	}))
	// Registered before the replica is started, so that it runs after that has ended.
	t.Cleanup(front.Close)
	front.EnableHTTP2 = true
	front.Config.ErrorLog = pass.ErrorLog
	front.StartTLS()
	p.server = server{front.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})}
	return p
}

func TestE07NotReadyAndNobodyLetInBeforeThePoliciesAreRead(t *testing.T) {
	namespace := namespaceOf(t, "unread-")
	enforce(t, "unread", guarding("unread.example.com/x"))
	proxy := newHoldingProxy(t, "/tolerationpolicies")
	r := startReplica(t, "replica-unread", proxy.server)
	pod := podWith(exists("unread.example.com/x", ""))

	eventually(t.Context(), t, "only the policies are missing", func(ctx context.Context) error {
		status, body, err := suite.Fetch(ctx, r.healthURL+"/readyz")
		switch {
		case err != nil:
			return err
		case status == http.StatusOK:
			return errors.New("it is ready")
		}
		for _, line := range []string{"[+]certificates ok", "[+]webhook ok", "[-]policies failed"} {
			if !strings.Contains(body, line) {
				return fmt.Errorf("no %q in %q", line, body)
			}
		}
		return nil
	})
	require.Positive(t, proxy.held.Load(), "the policies were asked for")
	client, err := newCaller(t.Context(), t)
	require.NoError(t, err)
	got, err := client.ask(t.Context(), r.webhookURL, namespace, pod)
	require.NoError(t, err)
	require.Equal(t, http.StatusInternalServerError, got.status, "no verdict is given without the policies, but: %s", got.body)

	close(proxy.free)
	r.waitReady(t)
	got, err = client.ask(t.Context(), r.webhookURL, namespace, pod)
	require.NoError(t, err)
	allowed, err := got.allowed()
	require.NoError(t, err)
	require.False(t, allowed)
	require.Contains(t, got.body, "TolerationPolicy/unread")
}

func TestPF4ReadyThoughThePodsOfTheClusterAreNotRead(t *testing.T) {
	namespace := namespaceOf(t, "podless-")
	enforce(t, "podless", guarding("podless.example.com/x"))
	proxy := newHoldingProxy(t, "/pods")
	r := startReplica(t, "replica-podless", proxy.server)
	r.waitReady(t)
	eventually(t.Context(), t, "the pods are asked for", func(context.Context) error {
		if proxy.held.Load() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	client, err := newCaller(t.Context(), t)
	require.NoError(t, err)
	for key, want := range map[string]bool{"podless.example.com/x": false, "free.example.com/x": true} {
		got, err := client.ask(t.Context(), r.webhookURL, namespace, podWith(exists(key, "")))
		require.NoError(t, err)
		allowed, err := got.allowed()
		require.NoError(t, err)
		require.Equal(t, want, allowed, got.body)
	}
}
