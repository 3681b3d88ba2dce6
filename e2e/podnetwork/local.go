package podnetwork

import (
	"fmt"
	"net/netip"
)

// All of 127.0.0.0/8 is this machine, and may be listened on by anyone.
const loopbackNet = 127

// Local is the address of this machine on which the processes of the pod with the IPv4
// address listen: 127.x.y.z for 10.x.y.z. The API server takes no address of loopback for
// that of a pod.
func Local(podIP string) (string, error) {
	address, err := netip.ParseAddr(podIP)
	if err != nil {
		return "", fmt.Errorf("parse address of pod: %w", err)
	}
	if !address.Is4() || address.As4()[0] != 10 {
		return "", fmt.Errorf("address of pod is %s, want one in 10.0.0.0/8", podIP)
	}
	bytes := address.As4()
	bytes[0] = loopbackNet
	return netip.AddrFrom4(bytes).String(), nil
}
