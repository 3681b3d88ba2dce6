package registration

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
	return suite.Run(m, "registration", controlplane.Options{}, installTollgate)
}

func installTollgate(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
	shared = cp
	var err error
	if programs, err = suite.Binaries(ctx); err != nil {
		return nil, err
	}
	if err := programs.BuildTollgate(ctx); err != nil {
		return nil, err
	}
	// The configurations are there before Tollgate is.
	if err := install.Apply(ctx, cp, webhooks()); err != nil {
		return nil, err
	}
	if err := nothingIsRefused(ctx); err != nil {
		return nil, fmt.Errorf("before Tollgate runs: %w", err)
	}
	tollgate, err = install.Install(ctx, cp, install.Options{
		Programs: programs, Managed: true, Patch: succeeding,
	})
	return nil, err
}

// succeeding configures a Tollgate whose successor does not wait long for the lease.
func succeeding(config map[string]any) {
	config["leaderElection"] = map[string]any{"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"}
}

// webhooks is the kustomization of the configurations as they are installed.
func webhooks() string {
	return filepath.Join(programs.Root, "e2e", "install", "managed", "webhooks")
}
