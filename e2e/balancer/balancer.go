package balancer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Backend is a replica.
type Backend struct {
	// Address is where it takes connections: host:port.
	Address string
	// ReadyURL answers with status 200 while the replica is to be given connections.
	ReadyURL string
}

// Options says how late is heard of what.
type Options struct {
	// Interval is how often each replica is asked whether it is ready; it must be
	// positive.
	Interval time.Duration
	// Delay is how much later connections come, or come no more: what it takes until
	// the endpoints of a Service are known on every node.
	Delay time.Duration
}

// Balancer is a balancer that was started. Its methods are safe for concurrent use.
type Balancer struct {
	options  Options
	listener net.Listener
	ctx      context.Context //nolint:containedctx // It ends with the balancer, as all that it starts.
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu        sync.Mutex
	endpoints []endpoint
	next      int
	// open are the connections of clients, with the addresses of the replicas that have
	// them, and those to replicas, with nothing.
	open map[net.Conn]string
}

// endpoint is what is known of a replica.
type endpoint struct {
	Backend

	given bool // it is given connections
}

// Start listens on a free loopback port and returns. Until there are replicas that have
// been found ready, all connections are refused. The balancer ends when ctx does or with
// Close.
func Start(ctx context.Context, options Options) (*Balancer, error) {
	if options.Interval <= 0 || options.Delay < 0 {
		return nil, fmt.Errorf("start balancer: interval %s must be positive, and delay %s not negative", options.Interval, options.Delay)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start balancer: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	b := &Balancer{options: options, listener: listener, ctx: ctx, stop: stop, open: map[net.Conn]string{}}
	b.running.Go(func() { b.accept(ctx) })
	b.running.Go(func() {
		<-ctx.Done()
		_ = listener.Close()
		b.closeAll()
	})
	return b, nil
}

// Add adds a replica, before Close is called. It is given connections from a delay after
// it was found ready.
func (b *Balancer) Add(backend Backend) {
	b.mu.Lock()
	defer b.mu.Unlock()
	index := len(b.endpoints)
	b.endpoints = append(b.endpoints, endpoint{Backend: backend})
	b.running.Go(func() { b.follow(b.ctx, index, backend) })
}

// Address is where connections are taken: host:port.
func (b *Balancer) Address() string { return b.listener.Addr().String() }

// Given are the addresses of the replicas that are given connections.
func (b *Balancer) Given() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var addresses []string
	for _, e := range b.endpoints {
		if e.given {
			addresses = append(addresses, e.Address)
		}
	}
	return addresses
}

// Open is how many connections a replica has.
func (b *Balancer) Open(address string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	count := 0
	for _, at := range b.open {
		if at == address {
			count++
		}
	}
	return count
}

// At returns the address of the replica that has a client's connection; empty when none
// has. The client is told by its own address: host:port.
func (b *Balancer) At(client string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn, at := range b.open {
		if at != "" && conn.RemoteAddr().String() == client {
			return at
		}
	}
	return ""
}

// Close ends the balancer with all its connections, and returns when nothing of it runs.
func (b *Balancer) Close() {
	b.stop()
	b.running.Wait()
}

// accept gives away connections until the listener is closed.
func (b *Balancer) accept(ctx context.Context) {
	for {
		client, err := b.listener.Accept()
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return
		}
		if err != nil {
			continue // such as a client that has gone again
		}
		b.running.Go(func() { b.join(ctx, client) })
	}
}

// pick returns the replica whose turn it is; false when none is ready.
func (b *Balancer) pick() (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.endpoints {
		e := b.endpoints[b.next]
		b.next = (b.next + 1) % len(b.endpoints)
		if e.given {
			return e.Address, true
		}
	}
	return "", false
}
