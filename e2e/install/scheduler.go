package install

import (
	"context"
	"path/filepath"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// Scheduler replaces the kube-scheduler of a control plane with the build of this
// repository, which allocates devices as ResourceSlicePatches make them: every pod of the
// default profile is scheduled by it. The build must exist (binaries.BuildScheduler), and
// Tollgate's CustomResourceDefinitions must be installed.
func Scheduler(ctx context.Context, cp *controlplane.ControlPlane, programs binaries.Binaries) error {
	folder := filepath.Join(programs.Root, "deploy", "scheduler")
	if err := Apply(ctx, cp, folder); err != nil {
		return err
	}
	return cp.ReplaceScheduler(ctx, controlplane.SchedulerOptions{
		Program: programs.Scheduler(), Config: filepath.Join(folder, "default-profile.yaml"),
	})
}
