package balancer

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const patience = 30 * time.Second

// replica says its name on each line that it is sent.
type replica struct {
	Backend

	listener net.Listener
	ready    atomic.Bool
}

func newReplica(t *testing.T, name string) *replica {
	t.Helper()
	r := &replica{}
	var config net.ListenConfig
	var err error
	r.listener, err = config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.listener.Close() })
	go r.serve(name)
	health := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !r.ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(health.Close)
	r.ready.Store(true)
	r.Backend = Backend{Address: r.listener.Addr().String(), ReadyURL: health.URL}
	return r
}

func (r *replica) serve(name string) {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			lines := bufio.NewScanner(conn)
			for lines.Scan() {
				if _, err := io.WriteString(conn, name+"\n"); err != nil {
					return
				}
			}
		}()
	}
}

// between starts a balancer and waits until all replicas are given connections.
func between(t *testing.T, replicas ...*replica) *Balancer {
	t.Helper()
	b, err := Start(t.Context(), Options{Interval: 5 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	for _, r := range replicas {
		b.Add(r.Backend)
	}
	waitGiven(t, b, replicas...)
	return b
}

func waitGiven(t *testing.T, b *Balancer, replicas ...*replica) {
	t.Helper()
	var want []string
	for _, r := range replicas {
		want = append(want, r.Address)
	}
	require.Eventually(t, func() bool {
		got := b.Given()
		if len(got) != len(want) {
			return false
		}
		for i := range got {
			if got[i] != want[i] {
				return false
			}
		}
		return true
	}, patience, time.Millisecond)
}

func connect(t *testing.T, b *Balancer) net.Conn {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", b.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

// ask returns who answers on a connection.
func ask(conn net.Conn) (string, error) {
	if _, err := io.WriteString(conn, "who\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", err
	}
	return line[:len(line)-1], nil
}

func requireFrom(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got, err := ask(conn)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// requireRefused fails if somebody answers. The client may hear that nobody does when it
// connects, or only later.
func requireRefused(t *testing.T, b *Balancer) {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", b.Address())
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	got, err := ask(conn)
	require.Error(t, err, "%s answers", got)
}

func TestReplicasTakeTurns(t *testing.T) {
	b := between(t, newReplica(t, "a"), newReplica(t, "b"))
	for _, want := range []string{"a", "b", "a", "b"} {
		requireFrom(t, connect(t, b), want)
	}
}

func TestAReplicaThatIsNotReadyIsGivenNoConnectionAndKeepsThoseItHas(t *testing.T) {
	a, other := newReplica(t, "a"), newReplica(t, "b")
	b := between(t, a, other)
	old := connect(t, b)
	requireFrom(t, old, "a")
	require.Equal(t, 1, b.Open(a.Address))
	require.Equal(t, a.Address, b.At(old.LocalAddr().String()))
	require.Empty(t, b.At("127.0.0.1:1"))

	a.ready.Store(false)
	waitGiven(t, b, other)
	for range 3 {
		requireFrom(t, connect(t, b), "b")
	}
	requireFrom(t, old, "a")

	a.ready.Store(true)
	waitGiven(t, b, a, other)
	old2, old3 := connect(t, b), connect(t, b)
	first, err := ask(old2)
	require.NoError(t, err)
	second, err := ask(old3)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"a", "b"}, []string{first, second})
}

func TestADeadReplicaRefusesUntilItIsHeardOf(t *testing.T) {
	a := newReplica(t, "a")
	b := between(t, a)
	// It still says that it is ready, as what a probe found last.
	require.NoError(t, a.listener.Close())
	requireRefused(t, b)
	require.Equal(t, []string{a.Address}, b.Given())
}

func TestWhereNobodyIsReadyConnectionsAreRefused(t *testing.T) {
	a := newReplica(t, "a")
	b := between(t, a)
	a.ready.Store(false)
	waitGiven(t, b)
	requireRefused(t, b)
}

func TestTheEndOfOneSideIsToldToTheOther(t *testing.T) {
	a := newReplica(t, "a")
	b := between(t, a)
	conn := connect(t, b)
	requireFrom(t, conn, "a")
	tcp, ok := conn.(*net.TCPConn)
	require.True(t, ok)
	require.NoError(t, tcp.CloseWrite())
	_, err := conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the replica has heard of it and ended too")
	require.Eventually(t, func() bool { return b.Open(a.Address) == 0 }, patience, time.Millisecond)
}

func TestCloseEndsTheConnections(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := newReplica(t, "a")
	b, err := Start(ctx, Options{Interval: time.Millisecond})
	require.NoError(t, err)
	b.Add(a.Backend)
	waitGiven(t, b, a)
	conn := connect(t, b)
	requireFrom(t, conn, "a")
	b.Close()
	_, err = ask(conn)
	require.Error(t, err)
	require.Zero(t, b.Open(a.Address))
}

func TestBadOptionsAreRefused(t *testing.T) {
	for name, options := range map[string]Options{
		"no interval":      {},
		"a negative delay": {Interval: time.Second, Delay: -1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Start(t.Context(), options)
			require.ErrorContains(t, err, "must be positive")
		})
	}
}

func TestAChangeIsHeardOfLate(t *testing.T) {
	const delay = time.Second
	at := func(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }
	tests := map[string][]struct {
		ms         int
		seen, want bool
	}{
		"it comes a delay after it was seen":   {{0, true, false}, {999, true, false}, {1000, true, true}, {5000, true, true}},
		"it goes a delay after it was seen":    {{0, true, false}, {1000, true, true}, {2000, false, true}, {2999, false, true}, {3000, false, false}},
		"what is taken back is never heard of": {{0, true, false}, {999, false, false}, {1500, true, false}, {2499, true, false}, {2500, true, true}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			var d delayed
			for _, step := range steps {
				require.Equal(t, step.want, d.after(delay, step.seen, at(step.ms)), "at %d ms", step.ms)
			}
		})
	}
}
