package safety

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// nodeCount is how many nodes there are. Tests that run beside each other use nodes of
// their own, by the numbers below.
const (
	nodeCount = 12

	nodeOfRule    = 6
	nodeOfBlocked = 7
	nodeOfPaused  = 8
	nodeOfBreaker = 9
	nodeOfBefore  = 10
	nodeOfByAPI   = 11
	nodeOfLate    = 12
)

// auditPolicy makes the API server write how Tollgate makes pods leave.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  users: ["system:serviceaccount:tollgate-system:tollgate"]
  verbs: [delete, deletecollection, create]
  resources: [{group: "", resources: [pods, pods/eviction]}]
- level: None
`

var (
	shared   *controlplane.ControlPlane
	tollgate *install.Tollgate
	audit    auditlog.Log
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
	dir, err := os.MkdirTemp("", "tollgate-audit-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	log, args, err := auditlog.New(dir, auditPolicy)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	audit = log
	options := controlplane.Options{Nodes: nodeCount, ExtraArgs: map[string][]string{
		controlplane.APIServer: args,
		// Who counts for budgets shall not be what is measured.
		controlplane.ControllerManager: {"--kube-api-qps=500", "--kube-api-burst=1000"},
	}}
	return suite.Run(m, "safety", options, installTollgate)
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
	tollgate, err = install.Install(ctx, cp, install.Options{Programs: programs, Patch: func(config map[string]any) {
		// So that who is started after a crash does not wait long for the lease, and nobody
		// loses it on a busy machine. What is between the first two is how long one attempt
		// may take.
		config["leaderElection"] = map[string]any{"leaseDuration": "20s", "renewDeadline": "15s", "retryPeriod": "500ms"}
	}})
	return nil, err
}
