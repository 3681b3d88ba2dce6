package eviction

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// nodeCount is how many nodes are tainted at once.
const nodeCount = 20

var (
	shared   *controlplane.ControlPlane
	tollgate *install.Tollgate
	// auditLog is where the API server writes what Tollgate asked for.
	auditLog string
)

// auditPolicy makes the API server write what Tollgate does to pods and nodes.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["system:serviceaccount:tollgate-system:tollgate"]
  verbs: [get, patch, update, delete, deletecollection, create]
  resources: [{group: "", resources: [pods, pods/*, nodes]}]
- level: None
`

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tollgate-audit-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	policy := filepath.Join(dir, "policy.yaml")
	auditLog = filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	options := controlplane.Options{Nodes: nodeCount, ExtraArgs: map[string][]string{
		controlplane.APIServer: {"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog, "--audit-log-mode=blocking"},
	}}
	return suite.Run(m, "eviction", options, installTollgate)
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
		// loses it on a busy machine: what was not answered by then is not counted. What is
		// between the first two is how long one attempt may take.
		config["leaderElection"] = map[string]any{"leaseDuration": "20s", "renewDeadline": "15s", "retryPeriod": "500ms"}
	}})
	return nil, err
}
