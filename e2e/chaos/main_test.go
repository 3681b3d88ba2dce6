package chaos

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// nodeCount is how many nodes there are.
const nodeCount = 4

var (
	shared   *controlplane.ControlPlane
	programs binaries.Binaries
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(suite.Run(m, "chaos"+os.Getenv("TOLLGATE_CHAOS_PLANE"), controlplane.Options{Nodes: nodeCount},
		func(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
			shared = cp
			var err error
			if programs, err = suite.Binaries(ctx); err != nil {
				return nil, err
			}
			if err := programs.BuildTollgate(ctx); err != nil {
				return nil, err
			}
			// Pods are put on nodes by hand.
			if err := cp.Kill(ctx, controlplane.Scheduler); err != nil {
				return nil, err
			}
			// No webhooks: what admission does under faults is for other tests, and a
			// replica that is frozen would hold up the workload.
			return nil, install.Apply(ctx, cp, filepath.Join(programs.Root, "deploy", "base", "rights"))
		}))
}

// How a schedule is run. The lease is short, so that there are several leaders.
const (
	leaseDuration = 4 * time.Second
	renewDeadline = 2 * time.Second
	retryPeriod   = 500 * time.Millisecond
	// watchSilence is after which a watch that says nothing is begun anew. The API server
	// says something in each about once a minute, and here they are begun anew that often.
	watchSilence = 6 * time.Second

	// settle is how long after the last fault everybody must have left who has to.
	settle = 8 * time.Second
	// patience is how long it is waited for that: on a quiet machine it takes up to 11 s.
	patience = 40 * time.Second
)
