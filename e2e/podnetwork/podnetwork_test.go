package podnetwork

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheAddressOfAPodIsOneOfThisMachine(t *testing.T) {
	t.Parallel()
	local, err := Local("10.160.7.3")
	require.NoError(t, err)
	require.Equal(t, "127.160.7.3", local)
	for _, bad := range []string{"", "192.0.2.1", "fd00::1", "pod"} {
		_, err := Local(bad)
		require.Error(t, err, bad)
	}
}

func TestAServiceLeadsToEndpointsAsKubeProxyHasIt(t *testing.T) {
	t.Parallel()
	endpoint := func(address string, ready, serving, terminating bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{
			Addresses:  []string{address},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		}
	}
	ready := endpoint("10.1.0.1", true, true, false)
	unready := endpoint("10.1.0.2", false, false, false)
	leaving := endpoint("10.1.0.3", false, true, true)
	gone := endpoint("10.1.0.4", false, false, true)
	unknown := discoveryv1.Endpoint{Addresses: []string{"10.1.0.5"}}

	tests := map[string]struct {
		endpoints []discoveryv1.Endpoint
		want      []string
	}{
		"those that are ready":                          {[]discoveryv1.Endpoint{ready, unready, leaving}, []string{"10.1.0.1:9443"}},
		"those of which nothing is known":               {[]discoveryv1.Endpoint{unknown, leaving}, []string{"10.1.0.5:9443"}},
		"those that serve while they end, if no others": {[]discoveryv1.Endpoint{unready, leaving, gone}, []string{"10.1.0.3:9443"}},
		"none, if none serves":                          {[]discoveryv1.Endpoint{unready, gone}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s"},
				Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{
					{Name: "webhook", Port: 443, Protocol: corev1.ProtocolTCP}, {Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
				}},
			}
			headless := service.DeepCopy()
			headless.Spec.ClusterIP = corev1.ClusterIPNone
			slice := func(namespace, port string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
				return &discoveryv1.EndpointSlice{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: "s"}},
					Ports:      []discoveryv1.EndpointPort{{Name: &port, Port: new(int32(9443))}},
					Endpoints:  endpoints,
				}
			}
			got := tableOf([]*corev1.Service{service, headless}, []*discoveryv1.EndpointSlice{
				slice("n", "webhook", test.endpoints...), slice("n", "other", ready), slice("elsewhere", "webhook", ready),
			})
			require.Equal(t, table{"10.96.0.7:443": test.want}, got)
		})
	}
}
