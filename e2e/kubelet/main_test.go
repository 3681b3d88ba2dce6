package kubelet_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/kubelet"
	"github.com/tollgate-dev/tollgate/e2e/podnetwork"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// patience is far above what anything here takes.
const patience = time.Minute

// selector selects the pods that are run as processes.
const selector = "app=echo"

var (
	shared *controlplane.ControlPlane
	runs   *kubelet.Kubelet
	// socket is where the network of pods is.
	socket string
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "echo" {
		os.Exit(echo(os.Args[2:]))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	// The path of a unix socket is short, so it is not in the directory of the control plane.
	dir, err := os.MkdirTemp("", "tollgate-pods-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket = filepath.Join(dir, "network")
	options := controlplane.Options{
		Nodes: 2, PodNetwork: socket, ExtraArgs: map[string][]string{controlplane.Kwok: kubelet.KwokArgs(selector)},
	}
	return suite.Run(m, "kubelet", options, func(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
		shared = cp
		network, err := podnetwork.Start(ctx, podnetwork.Options{Socket: socket, Config: cp.RESTConfig()})
		if err != nil {
			return nil, err
		}
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		runs, err = kubelet.Start(ctx, kubelet.Options{
			Config: cp.RESTConfig(), Selector: selector, Images: map[string]kubelet.Image{"example.com/echo": {Program: self}},
			Dir: filepath.Join(dir, "pods"), Logs: filepath.Join(cp.Dir(), "logs", "pods"),
		})
		if err != nil {
			return nil, err
		}
		return func() {
			runs.Stop()
			_ = network.Stop()
		}, nil
	})
}
