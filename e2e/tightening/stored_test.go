package tightening

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
)

// etcdClient returns a client of the control plane's etcd. What older API servers
// have stored, and the one that runs would refuse, can only be written there.
func etcdClient(t *testing.T) *clientv3.Client {
	t.Helper()
	pki := filepath.Join(shared.Dir(), "pki")
	certificate, err := tls.LoadX509KeyPair(filepath.Join(pki, "serving.crt"), filepath.Join(pki, "serving.key"))
	require.NoError(t, err)
	authority, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority))
	client, err := clientv3.New(clientv3.Config{
		Context:   t.Context(),
		Endpoints: []string{shared.URL("etcd")},
		TLS:       &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: roots, MinVersion: tls.VersionTLS13},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// store puts pod in the place of the stored one, past all that judges it.
func store(ctx context.Context, etcd *clientv3.Client, pod *corev1.Pod) error {
	stored := pod.DeepCopy()
	stored.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	stored.ResourceVersion = ""
	content, err := json.Marshal(stored)
	if err != nil {
		return fmt.Errorf("encode pod: %w", err)
	}
	key := "/registry/pods/" + pod.Namespace + "/" + pod.Name
	answer, err := etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), ">", 0)).
		Then(clientv3.OpPut(key, string(content))).
		Commit()
	if err != nil {
		return fmt.Errorf("store pod at %s: %w", key, err)
	}
	if !answer.Succeeded {
		return fmt.Errorf("store pod: there is none at %s", key)
	}
	return nil
}
