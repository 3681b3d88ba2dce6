package replicas

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/tollgate-dev/tollgate/e2e/balancer"
	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

const nodeCount = 4

// The lease, and how long a replica that ends goes on answering.
const (
	leaseDuration = 4 * time.Second
	renewDeadline = 2500 * time.Millisecond
	retryPeriod   = 500 * time.Millisecond
	drainPeriod   = 4 * time.Second
)

// What it takes until nothing more comes to a replica that says it is not ready; less
// than drainPeriod.
const (
	probeInterval = 100 * time.Millisecond
	endpointDelay = time.Second
)

var (
	shared   *controlplane.ControlPlane
	service  *balancer.Balancer
	programs binaries.Binaries
	first    *replica
	second   *replica
	audit    auditlog.Log
	// written is what both replicas asked the API server to change.
	written record
)

// auditPolicy makes the API server write which pods Tollgate deletes.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["system:serviceaccount:tollgate-system:tollgate"]
  verbs: [delete, deletecollection, create]
  resources: [{group: "", resources: [pods, pods/eviction]}]
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
	var args []string
	if audit, args, err = auditlog.New(dir, auditPolicy); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	options := controlplane.Options{Nodes: nodeCount, ExtraArgs: map[string][]string{controlplane.APIServer: args}}
	return suite.Run(m, "replicas", options, installReplicas)
}

// installReplicas installs Tollgate with two replicas behind a balancer.
func installReplicas(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
	shared = cp
	var err error
	if programs, err = suite.Binaries(ctx); err != nil {
		return nil, err
	}
	if err := programs.BuildTollgate(ctx); err != nil {
		return nil, err
	}
	service, err = balancer.Start(ctx, balancer.Options{Interval: probeInterval, Delay: endpointDelay})
	if err != nil {
		return nil, err
	}
	if first, err = installReplica(ctx, "tollgate", false); err != nil {
		return nil, err
	}
	if second, err = installReplica(ctx, "tollgate-second", true); err != nil {
		return nil, err
	}
	return func() {
		service.Close()
		first.proxy.Close()
		second.proxy.Close()
	}, nil
}
