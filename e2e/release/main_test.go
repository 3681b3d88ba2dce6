package release

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/kubelet"
	"github.com/tollgate-dev/tollgate/e2e/podnetwork"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// selector selects the pods of Tollgate.
const selector = "app.kubernetes.io/name=tollgate"

var (
	shared   *controlplane.ControlPlane
	programs binaries.Binaries
	// pods is where the kubelets keep what belongs to pods.
	pods string
)

// tools are the programs that make test-release builds, by the variables that name them.
var tools = map[string]string{"TOLLGATE_HELM": "", "TOLLGATE_COSIGN": "", "TOLLGATE_CRANE": "", "TOLLGATE_KUSTOMIZE": ""}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	for variable := range tools {
		tools[variable] = os.Getenv(variable)
		if tools[variable] == "" {
			fmt.Fprintln(os.Stderr, "not run: make test-release builds the programs that these tests need")
			return 0
		}
	}
	// The path of a unix socket is short, so it is not in the directory of the control plane.
	dir, err := os.MkdirTemp("", "tollgate-release-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	pods = filepath.Join(dir, "pods")
	socket := filepath.Join(dir, "network")
	options := controlplane.Options{
		Nodes: 5, PodNetwork: socket,
		ExtraArgs: map[string][]string{controlplane.Kwok: kubelet.KwokArgs(selector)},
	}
	return suite.Run(m, "release", options, func(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
		shared = cp
		var err error
		if programs, err = suite.Binaries(ctx); err != nil {
			return nil, err
		}
		network, err := podnetwork.Start(ctx, podnetwork.Options{Socket: socket, Config: cp.RESTConfig(), Delay: 100 * time.Millisecond})
		if err != nil {
			return nil, err
		}
		return func() { _ = network.Stop() }, nil
	})
}
