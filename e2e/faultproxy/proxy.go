package faultproxy

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Options says for whom a proxy stands in.
type Options struct {
	// Client is the client's own access. Requests go to its server. Those that bring no
	// Authorization header go with its credentials, all others with theirs alone: to an
	// API server that is shown both, a certificate counts for more than a token.
	Client *rest.Config
	// Replica is who the client is, in what is recorded.
	Replica string
	// Record is told of each write when it is over, whatever became of it. It is
	// called from several goroutines, and may be nil.
	Record func(Write)
	// Seed decides which requests a Fault with a Rate hits.
	Seed uint64
}

// Proxy serves one client. Its methods are safe for concurrent use.
type Proxy struct {
	options Options
	server  *httptest.Server
	infos   request.RequestInfoFactory
	gates   gates

	mutex  sync.Mutex // guards what follows
	random *rand.Rand
	faults []*injected
	offset time.Duration
}

// Start starts a proxy on a loopback port of its own. It is as transparent as a
// proxy can be until a fault is injected.
func Start(options Options) (*Proxy, error) {
	if options.Client == nil {
		return nil, fmt.Errorf("start proxy of %s: no access for its client", options.Replica)
	}
	target, _, err := rest.DefaultServerUrlFor(options.Client)
	if err != nil {
		return nil, fmt.Errorf("start proxy of %s: %w", options.Replica, err)
	}
	transport, err := newTransport(options.Client)
	if err != nil {
		return nil, fmt.Errorf("start proxy of %s: %w", options.Replica, err)
	}
	p := &Proxy{
		options: options,
		infos:   request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
		random:  rand.New(rand.NewPCG(options.Seed, 0)), //nolint:gosec // Faults that can be repeated, not secrecy.
	}
	p.server = httptest.NewUnstartedServer(&handler{proxy: p, forward: p.reverse(target, transport)})
	p.server.EnableHTTP2 = true
	// A client that hangs up is what a proxy of faults is for.
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.StartTLS()
	return p, nil
}

// transport sends each request with the credentials that it should have.
type transport struct{ own, bare http.RoundTripper }

func newTransport(client *rest.Config) (*transport, error) {
	own, err := rest.TransportFor(client)
	if err != nil {
		return nil, err
	}
	bare, err := rest.TransportFor(rest.AnonymousClientConfig(client))
	if err != nil {
		return nil, err
	}
	return &transport{own: own, bare: bare}, nil
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		return t.own.RoundTrip(r)
	}
	return t.bare.RoundTrip(r)
}

func (p *Proxy) reverse(target *url.URL, transport http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = target.Host
		},
		Transport:      transport,
		FlushInterval:  -1, // watches are streams
		ModifyResponse: p.answered,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			// Whatever it was, the client hears of it as of a broken connection.
			panic(http.ErrAbortHandler)
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
}

// URL is what the client is to take for the API server.
func (p *Proxy) URL() string { return p.server.URL }

// CA is the certificate that the client is to trust, as PEM.
func (p *Proxy) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
}

// WriteKubeconfig writes the kubeconfig that leads the client through the proxy. A
// bearer token of the client stands in it; a client certificate stays in the proxy.
func (p *Proxy) WriteKubeconfig(path string) error {
	const name = "faultproxy"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: p.URL(), CertificateAuthorityData: p.CA()}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: p.options.Client.BearerToken}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig for %s: %w", p.options.Replica, err)
	}
	return nil
}

// Disconnect closes the connections of the client. It can connect anew at once.
func (p *Proxy) Disconnect() { p.server.CloseClientConnections() }

// Close ends the proxy, and what is under way.
func (p *Proxy) Close() {
	p.Clear()
	p.server.CloseClientConnections()
	p.server.Close()
}

// StepDate shifts the time by which answers are dated, as if the clock of the API
// server were set. Steps add up, and Clear does not undo them.
func (p *Proxy) StepDate(by time.Duration) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.offset += by
}

// Offset is how far the dates of answers are ahead of the API server's clock.
func (p *Proxy) Offset() time.Duration {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.offset
}
