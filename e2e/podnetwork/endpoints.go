package podnetwork

import (
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// table holds, for each address of a Service, the addresses that it stands for.
type table map[string][]string

// tableOf decides where each port of each Service leads.
func tableOf(services []*corev1.Service, slices []*discoveryv1.EndpointSlice) table {
	out := table{}
	for _, service := range services {
		if service.Spec.ClusterIP == "" || service.Spec.ClusterIP == corev1.ClusterIPNone {
			continue
		}
		for _, port := range service.Spec.Ports {
			if port.Protocol != corev1.ProtocolTCP {
				continue
			}
			address := net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(port.Port)))
			out[address] = endpoints(service, port.Name, slices)
		}
	}
	return out
}

// endpoints are those that are ready. If there are none, those that still serve while they
// end are better than nothing, as kube-proxy has it.
func endpoints(service *corev1.Service, port string, slices []*discoveryv1.EndpointSlice) []string {
	var ready, serving []string
	for _, slice := range slices {
		if slice.Namespace != service.Namespace || slice.Labels[discoveryv1.LabelServiceName] != service.Name {
			continue
		}
		number := portOf(slice, port)
		if number == "" {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			conditions := endpoint.Conditions
			address := net.JoinHostPort(endpoint.Addresses[0], number)
			switch {
			case isTrue(conditions.Ready, true):
				ready = append(ready, address)
			case isTrue(conditions.Serving, false) && isTrue(conditions.Terminating, false):
				serving = append(serving, address)
			}
		}
	}
	if len(ready) == 0 {
		return serving
	}
	return ready
}

func portOf(slice *discoveryv1.EndpointSlice, name string) string {
	for _, port := range slice.Ports {
		if port.Port != nil && (port.Name == nil && name == "" || port.Name != nil && *port.Name == name) {
			return strconv.Itoa(int(*port.Port))
		}
	}
	return ""
}

// isTrue reads a condition, which is unknown if it is nil.
func isTrue(condition *bool, unknown bool) bool {
	if condition == nil {
		return unknown
	}
	return *condition
}
