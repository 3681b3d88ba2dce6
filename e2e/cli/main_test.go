package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

const (
	// patience is far above what anything here takes.
	patience = 2 * time.Minute
	interval = 100 * time.Millisecond
)

// The nodes. The tests of preview that taint nodes have those after the last one here, and
// the tests of explain add theirs.
const (
	nodeOfPreviewedDevices = 1 + iota
	nodeOfWaiting
	nodeOfKept
	nodeOfBlocked
	nodeOfBreaker
	nodeOfFollowed
	nodeOfTimeout
	nodeOfDevices
)

// auditPolicy makes the API server log which pods Tollgate deletes.
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

var (
	shared   *controlplane.ControlPlane
	programs binaries.Binaries
	audit    auditlog.Log
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
	// The tests wait for evictions and for the scheduler, and need no processor for that.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "tollgate-audit-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var auditArgs []string
	if audit, auditArgs, err = auditlog.New(dir, auditPolicy); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// The operators Lt and Gt are alpha.
	const comparing = "--feature-gates=TaintTolerationComparisonOperators=true"
	return suite.Run(m, "cli", controlplane.Options{
		Nodes: nodeOfDevices + len(onNodes) + len(simulations), ExtraArgs: map[string][]string{
			controlplane.APIServer: append(auditArgs, comparing),
			controlplane.Scheduler: {comparing},
			// Evicted pods, and claims of theirs, shall not keep the others waiting.
			controlplane.ControllerManager: {comparing, "--kube-api-qps=500", "--kube-api-burst=1000", "--node-monitor-period=500ms"},
		},
	}, installTollgate)
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
	}})
	return nil, err
}

// eventually returns when check does without an error, and fails the test with the last one
// if that takes too long.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(t.Context(), interval, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}
