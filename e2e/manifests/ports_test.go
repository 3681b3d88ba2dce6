package manifests

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The operator looks for ports by name: a PodMonitor for those of containers, a ServiceMonitor
// for those of the Service.
func TestMonitorsNameThePortOfTheMetrics(t *testing.T) {
	for kind, list := range map[string]string{"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints"} {
		t.Run(kind, func(t *testing.T) {
			all := template(t, "--set=monitoring.metrics=true,monitoring.monitor="+kind)
			config := configOf(t, as[corev1.ConfigMap](t, all, "ConfigMap tollgate-system/tollgate-config"))
			endpoints, found, err := unstructured.NestedSlice(all[kind+" tollgate-system/tollgate"].Object, "spec", list)
			require.NoError(t, err)
			require.True(t, found)
			require.Len(t, endpoints, 1)
			endpoint, _ := endpoints[0].(map[string]any)
			require.NotContains(t, endpoint, "portNumber")
			require.NotContains(t, endpoint, "targetPort")

			ports := map[string]string{}
			if kind == "PodMonitor" {
				for _, port := range deploymentOf(t, all).Spec.Template.Spec.Containers[0].Ports {
					ports[port.Name] = fmtPort(port.ContainerPort)
				}
			} else {
				for _, port := range as[corev1.Service](t, all, "Service tollgate-system/tollgate-metrics").Spec.Ports {
					ports[port.Name] = fmtPort(port.TargetPort.IntVal)
				}
			}
			name, _ := endpoint["port"].(string)
			require.Equal(t, config.Metrics.BindAddress, ports[name])
		})
	}
}
