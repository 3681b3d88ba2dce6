package certmanager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// readiness returns the answer of the check of the certificate.
func readiness(ctx context.Context, health string) error {
	status, body, err := suite.Fetch(ctx, health+"/readyz/certificates")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", status, body)
	}
	return err
}

func TestACertificateThatCannotBeIssuedIsReported(t *testing.T) {
	const name = "unissued"
	ctx, issuers, certificates := t.Context(), certManagerOf(t).Issuers(tollgateSystem), certManagerOf(t).Certificates(tollgateSystem)
	_, err := certificates.Create(ctx, &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certmanagerv1.CertificateSpec{
			SecretName:  name,
			IPAddresses: []string{"127.0.0.1"},
			IssuerRef:   cmmeta.IssuerReference{Name: name, Kind: certmanagerv1.IssuerKind},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	volume, err := newMount(filepath.Join(shared.Dir(), name), name)
	require.NoError(t, err)
	following, stop := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		volume.follow(following)
	}()
	t.Cleanup(func() {
		stop()
		<-followed
	})
	replica := startReplica(t, name, volume.directory)

	eventually(ctx, t, "the replica is not ready and counts why", func(ctx context.Context) error {
		switch err := readiness(ctx, replica.health.load()); {
		case err == nil:
			return errors.New("it is ready")
		case !strings.Contains(err.Error(), "status 500"):
			return fmt.Errorf("readiness: %w", err)
		}
		_, body, err := suite.Fetch(ctx, replica.metrics.load())
		if err != nil {
			return err
		}
		const reads = `tollgate_certificate_errors_total{reason="files_read"} `
		if !strings.Contains(body, reads) || strings.Contains(body, reads+"0\n") {
			return errors.New("it counts nothing")
		}
		return nil
	})
	require.ErrorContains(t, ready(ctx, certManagerOf(t), name), "is not ready")

	_, err = issuers.Create(ctx, &certmanagerv1.Issuer{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       certmanagerv1.IssuerSpec{IssuerConfig: certmanagerv1.IssuerConfig{CA: &certmanagerv1.CAIssuer{SecretName: caName}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(ctx, t, "the certificate is issued and the replica ready", func(ctx context.Context) error {
		return errors.Join(ready(ctx, certManagerOf(t), name), readiness(ctx, replica.health.load()))
	})
	require.NoError(t, replica.started(ctx))
}

// address is one that becomes known.
type address struct{ value atomic.Pointer[string] }

func (a *address) load() string {
	if value := a.value.Load(); value != nil {
		return *value
	}
	return ""
}

// replica is one more Tollgate, which may never become ready.
type replica struct {
	health, metrics address
	done            chan error
}

// startReplica starts one with its certificate in a directory, and ends it after the test.
func startReplica(t *testing.T, name, directory string) *replica {
	t.Helper()
	r := &replica{done: make(chan error, 1)}
	ctx := context.WithoutCancel(t.Context())
	go func() {
		_, err := install.Install(ctx, shared, install.Options{
			Name: name, Programs: programs, Replica: true,
			Patch: func(config map[string]any) {
				config["certificates"] = map[string]any{"mode": "Files", "directory": directory}
				r.health.value.Store(new(addressOf(config, "health")))
				r.metrics.value.Store(new(addressOf(config, "metrics") + "/metrics"))
			},
		})
		r.done <- err
	}()
	t.Cleanup(func() {
		if p, err := shared.Process(name); err == nil {
			require.NoError(t, p.Kill(ctx))
		}
	})
	return r
}

// started returns when the replica is installed.
func (r *replica) started(ctx context.Context) error {
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func addressOf(config map[string]any, section string) string {
	settings, _ := config[section].(map[string]any)
	return fmt.Sprintf("http://%v", settings["bindAddress"])
}
