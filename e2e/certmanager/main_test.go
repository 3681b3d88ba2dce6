package certmanager

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

var (
	shared   *controlplane.ControlPlane
	tollgate *install.Tollgate
	programs binaries.Binaries
	// webhookAddress is where the API server finds Tollgate.
	webhookAddress string
	// mounted is the directory that Tollgate has its certificate in.
	mounted *mount
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
	return suite.Run(m, "certmanager", controlplane.Options{Nodes: 1}, installAll)
}

// installAll installs cert-manager and Tollgate, all of it at once: the webhooks are there
// before there is a certificate.
func installAll(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
	shared = cp
	var err error
	if programs, err = suite.Binaries(ctx); err != nil {
		return nil, err
	}
	if err := programs.BuildTollgate(ctx); err != nil {
		return nil, err
	}
	if err := installCertManager(ctx); err != nil {
		return nil, err
	}
	ports, err := controlplane.FreePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	webhookAddress = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	kustomization, err := writeKustomization(filepath.Join(cp.Dir(), "kustomization"), webhookAddress)
	if err != nil {
		return nil, err
	}
	if err := install.Apply(ctx, cp, kustomization); err != nil {
		return nil, err
	}
	if mounted, err = newMount(filepath.Join(cp.Dir(), "certificates"), servingName); err != nil {
		return nil, err
	}
	following, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		mounted.follow(following)
	}()
	ended := func() {
		stop()
		<-done
	}
	tollgate, err = install.Install(ctx, cp, install.Options{
		Programs: programs,
		Replica:  true, // deploy/ is applied
		Patch: func(config map[string]any) {
			config["webhook"] = map[string]any{"bindAddress": webhookAddress, "drainPeriod": "0s"}
			config["certificates"] = map[string]any{"mode": "Files", "directory": mounted.directory}
		},
	})
	if err != nil {
		ended()
		return nil, fmt.Errorf("install tollgate: %w", err)
	}
	return ended, nil
}
