package controlplane

import (
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1beta1 "k8s.io/apiserver/pkg/apis/apiserver/v1beta1"
	"sigs.k8s.io/yaml"
)

func egressConfigIn(dir string) string { return filepath.Join(dir, "egress.yaml") }

// writeEgressConfig tells the API server to reach what is in the cluster through the
// socket, as one does whose nodes are in a network of their own. Webhooks by URL and etcd
// it goes on reaching by itself.
func writeEgressConfig(dir, socket string) error {
	if socket == "" {
		return nil
	}
	config := apiserverv1beta1.EgressSelectorConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: apiserverv1beta1.SchemeGroupVersion.String(), Kind: "EgressSelectorConfiguration"},
		EgressSelections: []apiserverv1beta1.EgressSelection{{
			Name: "cluster",
			Connection: apiserverv1beta1.Connection{
				ProxyProtocol: apiserverv1beta1.ProtocolHTTPConnect,
				Transport:     &apiserverv1beta1.Transport{UDS: &apiserverv1beta1.UDSTransport{UDSName: socket}},
			},
		}},
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("encode egress selector: %w", err)
	}
	if err := os.WriteFile(egressConfigIn(dir), text, 0o600); err != nil {
		return fmt.Errorf("write egress selector: %w", err)
	}
	return nil
}
