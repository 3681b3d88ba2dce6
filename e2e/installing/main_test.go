package installing

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/kubelet"
	"github.com/tollgate-dev/tollgate/e2e/podnetwork"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

const (
	// selector selects the pods of Tollgate.
	selector = "app.kubernetes.io/name=tollgate"
	image    = "ghcr.io/tollgate-dev/tollgate"
	system   = "tollgate-system"
	// heardAfter is how late the network hears of endpoints, as on the slowest of many
	// nodes.
	heardAfter = time.Second
)

var (
	shared   *controlplane.ControlPlane
	programs binaries.Binaries
	// pods is where the kubelets keep what belongs to pods.
	pods string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	// The path of a unix socket is short, so it is not in the directory of the control plane.
	dir, err := os.MkdirTemp("", "tollgate-pods-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	pods = filepath.Join(dir, "pods")
	socket := filepath.Join(dir, "network")
	options := controlplane.Options{
		// Replicas are on four of them at most, while they are replaced.
		Nodes: 7, PodNetwork: socket,
		ExtraArgs: map[string][]string{
			controlplane.Kwok:              kubelet.KwokArgs(selector),
			controlplane.ControllerManager: {"--kube-api-qps=500", "--kube-api-burst=1000", "--node-monitor-period=500ms"},
		},
	}
	return suite.Run(m, "installing", options, func(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
		shared = cp
		var err error
		if programs, err = suite.Binaries(ctx); err != nil {
			return nil, err
		}
		if err := programs.BuildTollgate(ctx); err != nil {
			return nil, err
		}
		network, err := podnetwork.Start(ctx, podnetwork.Options{Socket: socket, Config: cp.RESTConfig(), Delay: heardAfter})
		if err != nil {
			return nil, err
		}
		return func() { _ = network.Stop() }, nil
	})
}

// kubelets run the pods of Tollgate until the test is over, but for when they are stopped.
type kubelets struct {
	t    *testing.T
	runs *kubelet.Kubelet
}

func startKubelets(t *testing.T) *kubelets {
	t.Helper()
	k := &kubelets{t: t}
	k.start()
	t.Cleanup(k.stop)
	return k
}

func (k *kubelets) start() {
	k.t.Helper()
	var err error
	k.runs, err = kubelet.Start(context.WithoutCancel(k.t.Context()), kubelet.Options{
		Config: shared.RESTConfig(), Selector: selector,
		Images: map[string]kubelet.Image{image: {Program: programs.Tollgate(), Kubeconfig: true}},
		Dir:    pods, Logs: filepath.Join(shared.Dir(), "logs", "pods"),
	})
	require.NoError(k.t, err)
}

// stop kills all pods, as when all machines lose their power at once.
func (k *kubelets) stop() { k.runs.Stop() }
