package podnetwork

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// dialTimeout is far above what a connection within a machine takes.
const dialTimeout = 5 * time.Second

// errRefused is why a connection to a Service without endpoints is not made.
var errRefused = errors.New("connection refused: no endpoint")

func (n *Network) accept(ctx context.Context) {
	for {
		conn, err := n.listener.Accept()
		if err != nil {
			return // It is closed.
		}
		n.done.Go(func() { n.serve(ctx, conn) })
	}
}

// serve makes one connection for the API server.
func (n *Network) serve(ctx context.Context, client net.Conn) {
	if !n.note(ctx, client) {
		return
	}
	defer n.forget(client)
	request, err := http.ReadRequest(bufio.NewReader(client))
	if err != nil {
		return
	}
	pod, err := n.dial(ctx, request)
	if err != nil {
		_, _ = fmt.Fprintf(client, "HTTP/1.1 %d %s\r\n\r\n", http.StatusBadGateway, err)
		return
	}
	if !n.note(ctx, pod) {
		return
	}
	defer n.forget(pod)
	// The client, which speaks TLS, says nothing before it has read this.
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { pour(client, pod) })
	both.Go(func() { pour(pod, client) })
	both.Wait()
}

// pour copies what is sent one way, and tells the other side when it ends.
func pour(to, from net.Conn) {
	_, err := io.Copy(to, from)
	half, ok := to.(interface{ CloseWrite() error })
	if err != nil || !ok {
		_ = to.Close()
		_ = from.Close()
		return
	}
	_ = half.CloseWrite()
}

func (n *Network) dial(ctx context.Context, request *http.Request) (net.Conn, error) {
	if request.Method != http.MethodConnect {
		return nil, fmt.Errorf("method is %s, want %s", request.Method, http.MethodConnect)
	}
	address := request.Host
	if request.URL.Host != "" {
		address = request.URL.Host
	}
	address, err := n.resolve(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", address)
}

// resolve returns where on this machine the address of a Service or of a pod is.
func (n *Network) resolve(address string) (string, error) {
	if choices, ok := (*n.current.Load())[address]; ok {
		if len(choices) == 0 {
			return "", errRefused
		}
		address = choices[rand.IntN(len(choices))] //nolint:gosec // Spread, not secrecy.
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("parse address %q: %w", address, err)
	}
	local, err := Local(host)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(local, port), nil
}

// note keeps a connection for Stop. If that has been called already it closes it, and says
// so.
func (n *Network) note(ctx context.Context, conn net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ctx.Err() != nil {
		_ = conn.Close()
		return false
	}
	n.open[conn] = struct{}{}
	return true
}

func (n *Network) forget(conn net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = conn.Close()
	delete(n.open, conn)
}
