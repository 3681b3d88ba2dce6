package controlplane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

const loopback = "127.0.0.1"

// Ports below those that systems hand out to outgoing connections (32768 and
// up on Linux, 49152 elsewhere): between being found free and being listened
// on, a port of those could be taken by any connection on the machine.
const (
	firstPort = 20000
	lastPort  = 32000
)

// FreePorts finds n loopback ports that nothing listens on.
func FreePorts(ctx context.Context, n int) ([]int, error) {
	var config net.ListenConfig
	ports := make([]int, 0, n)
	for range lastPort - firstPort {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort) //nolint:gosec // Spread, not secrecy.
		listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		// Held until all are found, so that none is found twice.
		defer func() { _ = listener.Close() }()
		ports = append(ports, port)
	}
	return nil, errors.Join(fmt.Errorf("find %d free ports: found %d", n, len(ports)), ctx.Err())
}

// ports of one control plane.
type ports struct {
	Etcd              int `json:"etcd"`
	EtcdPeer          int `json:"etcdPeer"`
	APIServer         int `json:"apiServer"`
	ControllerManager int `json:"controllerManager"`
	Scheduler         int `json:"scheduler"`
}

func freePorts(ctx context.Context) (ports, error) {
	free, err := FreePorts(ctx, 5)
	if err != nil {
		return ports{}, err
	}
	return ports{
		Etcd: free[0], EtcdPeer: free[1], APIServer: free[2], ControllerManager: free[3], Scheduler: free[4],
	}, nil
}

func httpsURL(port int) string {
	return "https://" + net.JoinHostPort(loopback, strconv.Itoa(port))
}
