package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

const (
	// patience is far above what anything here takes.
	patience = 2 * time.Minute
	interval = 100 * time.Millisecond
	nodes    = 12
)

var (
	shared   *controlplane.ControlPlane
	programs binaries.Binaries
	// chromium and axe are the browser and the script of axe-core.
	chromium, axe = os.Getenv("TOLLGATE_CHROMIUM"), os.Getenv("TOLLGATE_AXE")
)

func TestMain(m *testing.M) {
	if chromium == "" || axe == "" {
		fmt.Fprintln(os.Stderr, "not run: make test-dashboard finds the Chromium and fetches the axe-core that these tests need")
		return
	}
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	os.Exit(suite.Run(m, "dashboard", controlplane.Options{Nodes: nodes}, func(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
		shared = cp
		var err error
		if programs, err = suite.Binaries(ctx); err != nil {
			return nil, err
		}
		if err := errors.Join(programs.BuildTollgate(ctx), programs.BuildPlugin(ctx)); err != nil {
			return nil, err
		}
		_, err = install.Install(ctx, cp, install.Options{Programs: programs})
		return nil, err
	}))
}
