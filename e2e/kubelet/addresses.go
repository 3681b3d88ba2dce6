package kubelet

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"

	"github.com/tollgate-dev/tollgate/e2e/podnetwork"
)

// Kwok gives out what is below 10.144.0.0. The addresses of pods are in 10.x.y.0/24, with
// x from firstSubnet; what is loopback in a pod is the same address with loopbackOffset
// more in the second place.
const (
	firstSubnet    = 150
	subnets        = 50
	loopbackOffset = 50
)

// addresses gives out addresses of pods. Two control planes on one machine share its
// loopback, so each takes its own part of it, by chance.
type addresses struct {
	second, third int

	mu   sync.Mutex
	last int // guarded by mu
}

func newAddresses() *addresses {
	return &addresses{second: firstSubnet + rand.IntN(subnets), third: rand.IntN(256)} //nolint:gosec // Spread, not secrecy.
}

// next returns an address that no pod has had for long: two hundred are given out before.
func (a *addresses) next() podAddress {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = a.last%200 + 1
	return podAddress{
		podIP:    fmt.Sprintf("10.%d.%d.%d", a.second, a.third, a.last),
		loopback: fmt.Sprintf("127.%d.%d.%d", a.second+loopbackOffset, a.third, a.last),
	}
}

// podAddress is what a pod is reached by.
type podAddress struct {
	// podIP is its address in the cluster.
	podIP string
	// loopback is what 127.0.0.1 is to its processes.
	loopback string
}

// listen returns where on this machine a process of the pod listens that is told to listen
// on the address, which is host:port. Anything else is returned as it is.
func (a podAddress) listen(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	local, err := podnetwork.Local(a.podIP)
	if err != nil {
		return address
	}
	switch ip := net.ParseIP(host); {
	case host == "" || host == a.podIP || ip != nil && ip.IsUnspecified():
		return net.JoinHostPort(local, port)
	case host == "localhost" || ip != nil && ip.IsLoopback():
		return net.JoinHostPort(a.loopback, port)
	default:
		return address
	}
}
