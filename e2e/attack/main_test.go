package attack

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

var (
	shared   *controlplane.ControlPlane
	tollgate *install.Tollgate
)

func TestMain(m *testing.M) {
	if url := os.Getenv(floodVariable); url != "" {
		os.Exit(runFlood(url))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	var groups cgroups
	if os.Getenv(durationVariable) != "" {
		var err error
		if groups, err = newCgroups(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := suite.Run(m, "attack", controlplane.Options{}, func(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
		shared = cp
		programs, err := suite.Binaries(ctx)
		if err != nil {
			return nil, err
		}
		if err := programs.BuildTollgate(ctx); err != nil {
			return nil, err
		}
		// As deploy/base does for a container with this limit of memory.
		limit := fmt.Sprintf("GOMEMLIMIT=%d000000B", memoryLimit>>20)
		tollgate, err = install.Install(ctx, cp, install.Options{Programs: programs, Env: []string{limit}, Cgroups: groups})
		return nil, err
	})
	if err := groups.remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
