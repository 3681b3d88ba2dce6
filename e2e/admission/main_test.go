package admission

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	tollgate *install.Tollgate
	programs binaries.Binaries
	// auditLog is where the API server writes who created and updated pods.
	auditLog string
)

// auditPolicy makes the API server write only what the tests read.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create]
  resources: [{group: "", resources: [pods]}]
- level: None
`

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about Tollgate
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
	options := controlplane.Options{ExtraArgs: map[string][]string{
		controlplane.APIServer: {
			"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog, "--audit-log-mode=blocking",
			// The older versions that clients still write, and that are not served by default.
			"--runtime-config=resource.k8s.io/v1beta2=true,resource.k8s.io/v1beta1=true,resource.k8s.io/v1alpha3=true",
		},
		// A node that fails is found and tainted at once, not within seconds.
		controlplane.ControllerManager: {"--node-monitor-period=500ms", "--node-eviction-rate=10"},
	}}
	return suite.Run(m, "admission", options, installTollgate)
}

func installTollgate(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
	shared = cp
	var err error
	if programs, err = suite.Binaries(ctx); err != nil {
		return nil, err
	}
	if err := programs.BuildTollgate(ctx); err != nil {
		return nil, err
	}
	tollgate, err = install.Install(ctx, cp, install.Options{Programs: programs, Patch: func(config map[string]any) {
		// So that who is started after a crash does not wait long for the lease.
		config["leaderElection"] = map[string]any{"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"}
	}})
	return nil, err
}
