package preview

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
	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// auditPolicy logs by whom pods are made to leave.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["system:serviceaccount:tollgate-system:tollgate"]
  verbs: [delete]
  resources: [{group: "", resources: [pods]}]
- level: None
`

// shared is the control plane, and the programs that run on it.
var shared struct {
	cp       *controlplane.ControlPlane
	programs binaries.Binaries
	audit    auditlog.Log
}

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
	// Most of the time the tests wait for tolerations to run out.
	if err := flag.Set("test.parallel", "8"); err != nil {
		return 1, fmt.Errorf("set flag: %w", err)
	}
	dir, err := os.MkdirTemp("", "tollgate-audit-")
	if err != nil {
		return 1, fmt.Errorf("create directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	log, args, err := auditlog.New(dir, auditPolicy)
	if err != nil {
		return 1, err
	}
	shared.audit = log
	shared.cp, err = suite.Start(ctx, "cli-preview", controlplane.Options{
		Nodes: 1 + len(onNodes), ExtraArgs: map[string][]string{controlplane.APIServer: args},
	})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := shared.cp.Stop(ctx); stopErr != nil {
			code, err = 1, errors.Join(err, stopErr)
		}
	}()
	if shared.programs, err = suite.Binaries(ctx); err != nil {
		return 1, err
	}
	if err := errors.Join(shared.programs.BuildTollgate(ctx), shared.programs.BuildPlugin(ctx)); err != nil {
		return 1, err
	}
	if _, err := install.Install(ctx, shared.cp, install.Options{Programs: shared.programs}); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
