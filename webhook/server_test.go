package webhook

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// dials is a listener whose clients have the addresses that a test gives them.
type dials struct {
	ahead chan net.Conn
	done  chan struct{}
	end   func()
}

func newDials(t *testing.T) *dials {
	t.Helper()
	d := &dials{ahead: make(chan net.Conn), done: make(chan struct{})}
	d.end = sync.OnceFunc(func() { close(d.done) })
	t.Cleanup(d.end)
	return d
}

// dial returns the client's end of a connection from an address.
func (d *dials) dial(address string) net.Conn {
	client, served := net.Pipe()
	d.ahead <- from{served, address}
	return client
}

func (d *dials) Accept() (net.Conn, error) {
	select {
	case conn := <-d.ahead:
		return conn, nil
	case <-d.done:
		return nil, net.ErrClosed
	}
}

func (d *dials) Close() error {
	d.end()
	return nil
}

func (*dials) Addr() net.Addr { return &net.TCPAddr{} }

type from struct {
	net.Conn

	address string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.address), Port: 1} }

// serveBounded serves an empty answer with the settings of the server of reviews.
func serveBounded(t *testing.T, listener net.Listener) {
	t.Helper()
	options := ServerOptions{Budget: time.Second, Metrics: testOptions().Metrics}
	s := NewServer(options)
	s.Register("/", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server := s.server(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		require.ErrorIs(t, <-served, http.ErrServerClosed)
		time.Sleep(time.Second) // A connection whose request was refused is kept for half of that.
	})
}

func TestA03SlowHeadersAreNotWaitedForLongerThanFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDials(t)
		serveBounded(t, d)
		start := time.Now()
		slow := d.dial("192.0.2.1")
		var writing sync.WaitGroup
		defer writing.Wait()
		writing.Go(func() {
			for _, letter := range "POST /validate HTTP/1.1\r\nHost: x\r\n" {
				if _, err := io.WriteString(slow, string(letter)); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		_, err := io.ReadAll(slow)
		require.NoError(t, err, "the server has closed the connection")
		require.LessOrEqual(t, time.Since(start), 5*time.Second)
	})
}

func TestA07HeadersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDials(t)
		serveBounded(t, d)
		client := d.dial("192.0.2.1")
		go func() {
			_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 2*headerBytes)+"\r\n\r\n")
		}()
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, answer.StatusCode)
		require.NoError(t, client.Close())
	})
}

func TestA11ConnectionsAreBounded(t *testing.T) {
	const all, each = 6, 4
	for name, tt := range map[string]struct {
		arrive []string
		open   map[string]int
		closed int
	}{
		"as many as there may be": {
			arrive: []string{"a", "a", "a", "a", "b", "b"}, open: map[string]int{"a": 4, "b": 2},
		},
		"more of one address than it may have": {
			arrive: []string{"a", "a", "a", "a", "a", "a"}, open: map[string]int{"a": 4}, closed: 2,
		},
		"one with few takes the place of one with most": {
			arrive: []string{"a", "a", "a", "a", "b", "b", "b"}, open: map[string]int{"a": 3, "b": 3}, closed: 1,
		},
		"one with most takes nothing from others": {
			arrive: []string{"a", "a", "a", "b", "b", "c", "a"}, open: map[string]int{"a": 3, "b": 2, "c": 1}, closed: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDials(t)
			closed := prometheus.NewCounter(prometheus.CounterOpts{Name: "closed_total", Help: "Connections that a limit closed."})
			listener := limitConnections(d, all, each, closed)
			names := map[string]string{"a": "192.0.2.1", "b": "192.0.2.2", "c": "192.0.2.3"}
			go func() {
				for _, name := range tt.arrive {
					d.dial(names[name])
				}
				d.end()
			}()
			var accepted []net.Conn
			for {
				conn, err := listener.Accept()
				if err != nil {
					require.ErrorIs(t, err, net.ErrClosed)
					break
				}
				accepted = append(accepted, conn)
			}
			open := map[string]int{}
			for _, conn := range accepted {
				if alive(conn) {
					for name, address := range names {
						if addressOf(conn) == address {
							open[name]++
						}
					}
				}
			}
			require.Equal(t, tt.open, open)
			require.InDelta(t, tt.closed, testutil.ToFloat64(closed), 0)
		})
	}
}

func TestA11AConnectionThatIsClosedMakesRoom(t *testing.T) {
	d := newDials(t)
	listener := limitConnections(d, 2, 1, prometheus.NewCounter(prometheus.CounterOpts{Name: "closed_total", Help: "Connections that a limit closed."}))
	for range 3 {
		go d.dial("192.0.2.1")
		conn, err := listener.Accept()
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		require.NoError(t, conn.Close(), "twice is once")
	}
}

// A server that ends answers what it was asked and then returns.
func TestTheServerEndsWithItsContext(t *testing.T) {
	var listens net.ListenConfig
	free, err := listens.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	s := NewServer(ServerOptions{BindAddress: free.Addr().String(), Budget: time.Second, Metrics: testOptions().Metrics})
	ready := s.StartedChecker()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody)
	require.NoError(t, err)
	require.ErrorContains(t, ready(r), "not started yet")

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	<-s.listening
	cancel()
	require.NoError(t, <-ended)
	require.ErrorContains(t, ready(r), "connect to the server of reviews")
}

func TestE06AReviewThatIsUnderWayIsFinished(t *testing.T) {
	for name, tt := range map[string]struct {
		ends func(server func(), client net.Conn)
		want error
	}{
		"when the server ends":           {func(server func(), _ net.Conn) { server() }, nil},
		"but not when its client leaves": {func(_ func(), client net.Conn) { _ = client.Close() }, context.Canceled},
		"but not when its client leaves a server that ends": {
			func(server func(), client net.Conn) { server(); _ = client.Close() }, context.Canceled,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				type key struct{}
				ctx, end := context.WithCancel(context.WithValue(t.Context(), key{}, "log"))
				defer end()
				s := NewServer(ServerOptions{Budget: time.Second, Metrics: testOptions().Metrics})
				d := newDials(t)
				served := make(chan error, 1)
				got := make(chan error, 1)
				var client net.Conn
				var value any
				s.Register("/", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					tt.ends(end, client)
					synctest.Wait()
					value = r.Context().Value(key{})
					got <- r.Context().Err()
				}))
				server := s.server(ctx)
				go func() { served <- server.Serve(d) }()
				client = d.dial("192.0.2.1")
				_, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				require.NoError(t, err)
				require.ErrorIs(t, <-got, tt.want)
				require.Equal(t, "log", value)
				require.NoError(t, client.Close())
				require.NoError(t, server.Close())
				require.ErrorIs(t, <-served, http.ErrServerClosed)
			})
		})
	}
}

// alive reports whether a connection was not closed.
func alive(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now())
	_, err := conn.Read(make([]byte, 1))
	return !errors.Is(err, io.ErrClosedPipe)
}
