package spread

import (
	"context"
	"io"
	"os"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// nodes is how many nodes there are.
const nodes = 6

var shared *controlplane.ControlPlane

func TestMain(m *testing.M) {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
	os.Exit(suite.Run(m, "cli-spread", controlplane.Options{Nodes: nodes}, installTollgate))
}

func installTollgate(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
	shared = cp
	programs, err := suite.Binaries(ctx)
	if err != nil {
		return nil, err
	}
	if err := programs.BuildTollgate(ctx); err != nil {
		return nil, err
	}
	_, err = install.Install(ctx, cp, install.Options{Programs: programs})
	return nil, err
}
