package balancer

import (
	"context"
	"io"
	"net"
	"sync"
)

// join connects a client with the replica whose turn it is, until both have ended what
// they send, or one of them breaks off.
func (b *Balancer) join(ctx context.Context, client net.Conn) {
	address, ok := b.pick()
	if !ok {
		refuse(client)
		return
	}
	var dialer net.Dialer
	replica, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		refuse(client)
		return
	}
	if !b.note(ctx, address, client, replica) {
		return
	}
	defer b.forget(client, replica)
	var both sync.WaitGroup
	both.Go(func() { pour(replica, client) })
	both.Go(func() { pour(client, replica) })
	both.Wait()
}

// pour copies what is sent one way. That one side ends is told to the other; that it
// breaks off ends both ways.
func pour(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		refuse(to)
		refuse(from)
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// refuse resets a connection, as the kernel of a replica does where nothing listens.
func refuse(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// note keeps a pair of connections for closeAll. If that has been called already it
// closes them, and says so.
func (b *Balancer) note(ctx context.Context, address string, client, replica net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		refuse(client)
		refuse(replica)
		return false
	}
	b.open[client], b.open[replica] = address, ""
	return true
}

func (b *Balancer) forget(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
		delete(b.open, conn)
	}
}

func (b *Balancer) closeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn := range b.open {
		refuse(conn)
	}
}
