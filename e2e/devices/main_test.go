package devices

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
)

// shared is the control plane of all tests that do not need one of their own.
var shared *plane

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
	// TestMain has no *testing.T to take a context from.
	code, err := run(context.Background(), m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	// Most tests wait for tolerations to run out, and need no processor for that.
	if err := flag.Set("test.parallel", "32"); err != nil {
		return 1, fmt.Errorf("set flag: %w", err)
	}
	dir, err := os.MkdirTemp("", "tollgate-audit-")
	if err != nil {
		return 1, fmt.Errorf("create directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	shared, err = startPlane(ctx, "devices", dir, lasting)
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := shared.cp.Stop(ctx); stopErr != nil {
			code, err = 1, errors.Join(err, stopErr)
		}
	}()
	return m.Run(), nil
}
