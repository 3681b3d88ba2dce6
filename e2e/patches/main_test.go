package patches

import (
	"context"
	"errors"
	"flag"
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
	programs binaries.Binaries
)

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what clients log here says nothing about the scheduler
	// Most tests wait for the scheduler, and need no processor for that.
	if err := flag.Set("test.parallel", "32"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(suite.Run(m, "patches", controlplane.Options{
		Nodes: 4, ExtraArgs: map[string][]string{
			// What takes back the claims of pods shall not keep the others waiting for theirs.
			controlplane.ControllerManager: {"--kube-api-qps=500", "--kube-api-burst=1000"},
		},
	}, installAll))
}

func installAll(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
	shared = cp
	var err error
	if programs, err = suite.Binaries(ctx); err != nil {
		return nil, err
	}
	if err := programs.BuildScheduler(ctx); err != nil {
		return nil, err
	}
	for _, folder := range []string{"crd", "scheduler"} {
		if err := install.Apply(ctx, cp, filepath.Join(programs.Root, "deploy", folder)); err != nil {
			return nil, err
		}
	}
	if err := schedule(ctx, defaultProfile); err != nil {
		return nil, err
	}
	if err := errors.Join(programs.BuildTollgate(ctx), programs.BuildPlugin(ctx)); err != nil {
		return nil, err
	}
	if _, err := install.Install(ctx, cp, install.Options{Programs: programs}); err != nil {
		return nil, err
	}
	return nil, startBarrier(ctx)
}

// The configurations in deploy/scheduler.
const (
	defaultProfile = "default-profile.yaml"
	secondProfile  = "second-profile.yaml"
)

// schedule puts our scheduler in the place of what schedules.
func schedule(ctx context.Context, config string) error {
	return shared.ReplaceScheduler(ctx, controlplane.SchedulerOptions{
		Program: programs.Scheduler(),
		Config:  filepath.Join(programs.Root, "deploy", "scheduler", config),
		// The tests wait for what it decides, and not for the limits of its client.
		Change: func(config map[string]any) {
			connection := config["clientConnection"].(map[string]any) //nolint:forcetypeassert // ReplaceScheduler writes into it.
			connection["qps"], connection["burst"] = 500, 1000
		},
	})
}
