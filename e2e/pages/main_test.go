package pages

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

var programs binaries.Binaries

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
	// TestMain has no *testing.T to take a context from.
	if err := build(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func build(ctx context.Context) error {
	// Each page has a control plane of its own; most of the time one waits for it.
	if err := flag.Set("test.parallel", "2"); err != nil {
		return fmt.Errorf("set flag: %w", err)
	}
	var err error
	if programs, err = suite.Binaries(ctx); err != nil {
		return err
	}
	return errors.Join(programs.BuildTollgate(ctx), programs.BuildPlugin(ctx))
}

func start(ctx context.Context, name string, options controlplane.Options) (*controlplane.ControlPlane, error) {
	return suite.Start(ctx, "pages-"+name, options)
}

// withTollgate installs Tollgate on the control plane of a reader, beside the cluster.
func withTollgate(t *testing.T, r *reader) *install.Tollgate {
	t.Helper()
	tollgate, err := install.Install(t.Context(), r.cp, install.Options{Programs: programs})
	require.NoError(t, err)
	return tollgate
}
