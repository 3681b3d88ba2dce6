package webhook

import (
	"net"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

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
