package explain

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
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
	programs binaries.Binaries
)

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
	// The scenarios wait for the scheduler and for events, and need no processor for that.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// The operators Lt and Gt are alpha.
	const comparing = "--feature-gates=TaintTolerationComparisonOperators=true"
	os.Exit(suite.Run(m, "explain", controlplane.Options{
		Nodes: controlplane.NoNodes, ExtraArgs: map[string][]string{
			controlplane.APIServer: {comparing},
			controlplane.Scheduler: {comparing},
			// Evicted pods, and claims of theirs, shall not keep the others waiting.
			controlplane.ControllerManager: {comparing, "--kube-api-qps=500", "--kube-api-burst=1000", "--node-monitor-period=500ms"},
		},
	}, installTollgate))
}

func installTollgate(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
	shared = cp
	var err error
	if programs, err = suite.Binaries(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(programs.BuildTollgate(ctx), programs.BuildPlugin(ctx)); err != nil {
		return nil, err
	}
	_, err = install.Install(ctx, cp, install.Options{Programs: programs, Patch: func(config map[string]any) {
		config["eviction"] = map[string]any{"comparisonOperators": true}
		config["leaderElection"] = map[string]any{"leaseDuration": "8s", "renewDeadline": "3s", "retryPeriod": "500ms"}
	}})
	return nil, err
}
