package evictions

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

// Tests run beside each other, on nodes of their own.
const (
	nodeCount = 8

	nodeOfWaiting = 1 + iota
	nodeOfKept
	nodeOfBlocked
	nodeOfBreaker
	nodeOfFollowed
	nodeOfTimeout
	nodeOfDevices
)

var (
	shared   *controlplane.ControlPlane
	programs binaries.Binaries
)

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
	// The tests wait for evictions, and need no processor for that.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(suite.Run(m, "cli-evictions", controlplane.Options{Nodes: nodeCount}, installTollgate))
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
	_, err = install.Install(ctx, cp, install.Options{Programs: programs})
	return nil, err
}
