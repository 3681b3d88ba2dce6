package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// Run starts a control plane as Start does, runs the tests, and stops the
// control plane; the logs stay until the next run. Before the tests, ready is
// called with the control plane and may install things; what it returns is
// called after them, if it is not nil. Run returns the exit code of the test
// binary.
func Run(
	m *testing.M, name string, options controlplane.Options,
	ready func(ctx context.Context, cp *controlplane.ControlPlane) (stop func(), err error),
) int {
	// TestMain has no *testing.T to take a context from.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	code, err := run(ctx, m, name, options, ready)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(
	ctx context.Context, m *testing.M, name string, options controlplane.Options,
	ready func(ctx context.Context, cp *controlplane.ControlPlane) (stop func(), err error),
) (code int, err error) {
	cp, err := Start(ctx, name, options)
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := cp.Stop(ctx); stopErr != nil && err == nil {
			code, err = 1, stopErr
		}
	}()
	stop, err := ready(ctx, cp)
	if err != nil {
		return 1, err
	}
	if stop != nil {
		defer stop()
	}
	return m.Run(), nil
}

// Start builds the control plane, unless it is up to date, and starts one in
// .cluster-NAME at the root of the repository. Program and Dir of the options
// are set here.
func Start(ctx context.Context, name string, options controlplane.Options) (*controlplane.ControlPlane, error) {
	programs, err := Binaries(ctx)
	if err != nil {
		return nil, err
	}
	options.Dir, options.Program = filepath.Join(programs.Root, ".cluster-"+name), programs.ControlPlane()
	// What a test binary that was killed has left.
	if old, err := controlplane.Open(options.Dir); err == nil {
		if err := old.Stop(ctx); err != nil {
			return nil, err
		}
	}
	return controlplane.Start(ctx, options)
}

// Binaries builds the control plane, unless it is up to date, and says where it is. The
// environment says of which version of Kubernetes it is, and whether it is up to date:
// see binaries.VersionVariable and binaries.BuiltVariable.
func Binaries(ctx context.Context) (binaries.Binaries, error) {
	root, err := binaries.Root(".")
	if err != nil {
		return binaries.Binaries{}, err
	}
	version, err := binaries.Version(os.Getenv(binaries.VersionVariable))
	if err != nil {
		return binaries.Binaries{}, fmt.Errorf("%s: %w", binaries.VersionVariable, err)
	}
	// What has been built is the newest version alone.
	built := os.Getenv(binaries.BuiltVariable) != "" && version == binaries.KubernetesVersion
	programs := binaries.Binaries{Root: root, Kubernetes: version, Built: built}
	return programs, programs.BuildControlPlane(ctx)
}
