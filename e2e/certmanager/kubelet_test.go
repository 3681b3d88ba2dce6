package certmanager

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

// mount is a Secret as a volume, which is optional. It is written by the kubelet's own
// code, sooner after the Secret than a kubelet would.
type mount struct {
	directory string
	secret    string
	client    kubernetes.Interface
	writer    *volumeutil.AtomicWriter
}

// newMount makes a directory without files, as where there is no Secret yet. What a former
// run has left there would be taken for a certificate.
func newMount(directory, secret string) (*mount, error) {
	if err := os.RemoveAll(directory); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(shared.RESTConfig())
	if err != nil {
		return nil, err
	}
	writer, err := volumeutil.NewAtomicWriter(directory, "the tests")
	if err != nil {
		return nil, err
	}
	return &mount{directory: directory, secret: secret, client: client, writer: writer}, nil
}

// follow keeps the files up to date until ctx ends. What fails is tried again, and said.
func (m *mount) follow(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := m.update(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", m.directory, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (m *mount) update(ctx context.Context) error {
	secret, err := m.client.CoreV1().Secrets(tollgateSystem).Get(ctx, m.secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get secret: %w", err)
	}
	files := map[string]volumeutil.FileProjection{}
	for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		if data, ok := secret.Data[key]; ok {
			files[key] = volumeutil.FileProjection{Data: data, Mode: 0o400}
		}
	}
	return m.writer.Write(files, nil)
}
