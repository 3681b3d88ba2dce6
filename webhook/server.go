package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// Bounds of the port that every pod may reach. An API server sends a review as soon as it
// has a connection, so that none of them is near for it.
const (
	// headerTimeout bounds the handshake of TLS, and then the header of each request (A03).
	headerTimeout = 5 * time.Second
	// idleTimeout is as long as API servers keep a connection that they do not use.
	idleTimeout = 90 * time.Second
	// headerBytes leaves room for a token.
	headerBytes = 64 << 10
	// streams bounds the requests at one time on a connection of HTTP/2 (A07).
	streams = 100
	// connectionBuffer bounds what is received on a connection of HTTP/2 before a handler reads it,
	// which has no room among Bodies, and frameBuffer a frame of it. They are the least that net/http
	// takes; by default it holds a MiB of each (A02).
	connectionBuffer = 64 << 10
	frameBuffer      = 16 << 10
	// connectionLimit bounds the connections that are open, of all clients (A11). Each takes
	// some 50 KiB while it is idle.
	connectionLimit = 2000
	// connectionLimitEach bounds those of one address: an API server has at most 600 requests
	// at one time (--max-requests-inflight and --max-mutating-requests-inflight), and over
	// HTTP/1.1 a connection for each.
	connectionLimitEach = 600
)

// ServerOptions configure a Server.
type ServerOptions struct {
	// BindAddress is host:port; an empty host is every address of the machine.
	BindAddress string
	// TLS change the configuration of the server's TLS in their order. One of them sets
	// GetCertificate.
	TLS []func(*tls.Config)
	// Budget is that of the endpoints.
	Budget time.Duration
	// Metrics counts the connections that are closed by a limit.
	Metrics *Metrics
}

// Server serves the endpoints by HTTPS, with bounds on connections, streams, headers and idle
// time. controller-runtime's has none on connections, and 32 seconds for headers. It
// implements controller-runtime's webhook.Server, which starts before caches are filled, on
// every replica.
type Server struct {
	options ServerOptions
	mux     *http.ServeMux
	// listening is closed once the port is open.
	listening chan struct{}
}

// NewServer returns a server that serves nothing yet. It opens no port: that is what Start does.
func NewServer(options ServerOptions) *Server {
	return &Server{options: options, mux: http.NewServeMux(), listening: make(chan struct{})}
}

// Register has a handler answer at a path. It panics if the path has one.
func (s *Server) Register(path string, handler http.Handler) { s.mux.Handle(path, handler) }

// WebhookMux implements webhook.Server.
func (s *Server) WebhookMux() *http.ServeMux { return s.mux }

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until ctx is done, and returns when the requests under way were answered, at
// most a minute later. Requests have the values of ctx, and outlive it: the client of a request
// cancels its context, by closing the connection (E06).
func (s *Server) Start(ctx context.Context) error {
	config := &tls.Config{NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	for _, change := range s.options.TLS {
		change(config)
	}
	var listens net.ListenConfig
	open, err := listens.Listen(ctx, "tcp", s.options.BindAddress)
	if err != nil {
		return fmt.Errorf("listen for reviews: %w", err)
	}
	server := s.server(ctx)
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		shutDown(ctx, server)
	})
	close(s.listening)
	err = server.Serve(tls.NewListener(limitConnections(open, connectionLimit, connectionLimitEach, s.options.Metrics.connections), config))
	if !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("serve reviews: %w", err)
	}
	<-ended
	return nil
}

func (s *Server) server(ctx context.Context) *http.Server {
	requests := context.WithoutCancel(ctx)
	return &http.Server{
		Handler:           s.mux,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streams, MaxReadFrameSize: frameBuffer,
			MaxReceiveBufferPerConnection: connectionBuffer, MaxReceiveBufferPerStream: connectionBuffer,
		},
		// From the header on: endpoints set tighter deadlines for a body and for an answer.
		WriteTimeout: s.options.Budget + bodyTimeout + 2*writeTimeout,
	}
}

// shutDown closes the port, and the connections once they are idle.
func shutDown(ctx context.Context, server *http.Server) {
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "shut down the server of reviews")
	}
}

// StartedChecker implements webhook.Server: the check fails while no client can connect.
func (s *Server) StartedChecker() healthz.Checker {
	const patience = 10 * time.Second
	return func(r *http.Request) error {
		select {
		case <-s.listening:
		default:
			return errors.New("the server of reviews was not started yet")
		}
		// It checks that a server answers, and not which one.
		dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // See above.
		conn, err := dialer.DialContext(r.Context(), "tcp", s.options.BindAddress)
		if err != nil {
			return fmt.Errorf("connect to the server of reviews: %w", err)
		}
		if err := conn.Close(); err != nil {
			return fmt.Errorf("close a connection to the server of reviews: %w", err)
		}
		return nil
	}
}

// connections is a listener that bounds how many connections are open, in all and of one
// address, so that clients without an identity cannot take the place of the API servers.
type connections struct {
	net.Listener

	all, each int
	closed    prometheus.Counter

	mu   sync.Mutex
	open map[string][]*connection // by address, in the order of their arrival
	n    int
}

// limitConnections returns a listener with at most all connections at a time, and at most
// each of one address. A connection beyond the limit of its address is closed at once. One
// beyond the limit of all takes the place of the newest of the address that has the most,
// unless that is its own. Closed counts both.
func limitConnections(listener net.Listener, all, each int, closed prometheus.Counter) net.Listener {
	return &connections{Listener: listener, all: all, each: each, closed: closed, open: map[string][]*connection{}}
}

// Accept implements net.Listener.
func (l *connections) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		admitted := &connection{Conn: conn, from: l, address: addressOf(conn)}
		victim := l.admit(admitted)
		if victim == nil {
			return admitted, nil
		}
		l.closed.Inc()
		_ = victim.Close() // The client sees it, whatever this says.
		if victim != admitted {
			return admitted, nil
		}
	}
}

// admit adds a connection and returns the one that has to be closed for it, if any. That may
// be the connection itself, which was not added then.
func (l *connections) admit(c *connection) (victim *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mine := len(l.open[c.address])
	if mine >= l.each {
		return c
	}
	if l.n >= l.all {
		greediest, most := "", mine
		for address, theirs := range l.open {
			if len(theirs) > most {
				greediest, most = address, len(theirs)
			}
		}
		if most == mine {
			return c
		}
		victim = l.open[greediest][most-1]
		l.remove(victim)
	}
	l.open[c.address] = append(l.open[c.address], c)
	l.n++
	return victim
}

// remove takes a connection out, if it is in. The caller holds mu.
func (l *connections) remove(c *connection) {
	left := l.open[c.address]
	i := slices.Index(left, c)
	if i < 0 {
		return
	}
	l.n--
	if left = slices.Delete(left, i, i+1); len(left) == 0 {
		delete(l.open, c.address)
		return
	}
	l.open[c.address] = left
}

// connection leaves its listener when it is closed.
type connection struct {
	net.Conn

	from    *connections
	address string
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.from.mu.Lock()
	c.from.remove(c)
	c.from.mu.Unlock()
	return c.Conn.Close()
}

// addressOf returns the address of a client without its port.
func addressOf(conn net.Conn) string {
	remote := conn.RemoteAddr().String()
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return host
}
