package controlplane

import (
	"fmt"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// identities that components act under. The first two are the users that the
// API server's own RBAC rules are for. Playing every kubelet at once is nothing
// RBAC has a role for.
func identities() map[string]identity {
	return map[string]identity{
		ControllerManager: {user: "system:kube-controller-manager"},
		Scheduler:         {user: "system:kube-scheduler"},
		Kwok:              {user: "kwok", groups: []string{"system:masters"}},
		"admin":           {user: "kubernetes-admin", groups: []string{"system:masters"}},
	}
}

type identity struct {
	user   string
	groups []string
}

func kubeconfigOf(dir, name string) string {
	if name == "admin" {
		return filepath.Join(dir, "kubeconfig")
	}
	return filepath.Join(dir, "pki", name+".kubeconfig")
}

// writeKubeconfigs gives each identity a kubeconfig for the server.
func writeKubeconfigs(dir, server string, ca *authority) error {
	for name, id := range identities() {
		pair, err := ca.client(id.user, id.groups...)
		if err != nil {
			return err
		}
		auth := clientcmdapi.AuthInfo{ClientCertificateData: pair.cert, ClientKeyData: pair.key}
		if err := WriteKubeconfig(kubeconfigOf(dir, name), server, ca.pem, auth); err != nil {
			return err
		}
	}
	return nil
}

// WriteKubeconfig writes a kubeconfig with one cluster, one user and one context.
func WriteKubeconfig(path, server string, ca []byte, auth clientcmdapi.AuthInfo) error {
	const name = "tollgate-e2e"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[name] = &auth
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// adminConfig reads the administrator's kubeconfig. Its clients are not
// throttled: a test must not measure its own client.
func adminConfig(dir string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfigOf(dir, "admin"))
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1
	return config, nil
}
