// Command demo tells what Tollgate does, step by step, on a real control plane.
// Each step is checked; the first that is not as told ends the story with an
// error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/command"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

func main() {
	os.Exit(command.Run(newCommand()))
}

func newCommand() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:           "demo",
		Short:         "Watch Tollgate refuse a toleration, stamp a taint and evict on time",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd.Context(), cmd.OutOrStdout(), keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the control plane up afterwards")
	return cmd
}

// demo prepares the stage, has the story told, and clears up.
func demo(ctx context.Context, out io.Writer, keep bool) (err error) {
	root, err := binaries.Root(".")
	if err != nil {
		return err
	}
	start := time.Now()
	say := func(step string) {
		_, _ = fmt.Fprintf(out, "%6.1fs  %s\n", time.Since(start).Seconds(), step)
	}
	programs := binaries.Binaries{Root: root, Progress: say}
	say("building Kubernetes " + binaries.KubernetesVersion + " and etcd from their Go modules (about 6 minutes the first time)")
	if err := programs.BuildControlPlane(ctx); err != nil {
		return err
	}
	say("building Tollgate")
	if err := errors.Join(programs.BuildTollgate(ctx), programs.BuildPlugin(ctx)); err != nil {
		return err
	}
	say("building Tollgate's kube-scheduler (minutes the first time)")
	if err := programs.BuildScheduler(ctx); err != nil {
		return err
	}
	// What make cluster-down ends, if it is to stay.
	dir := filepath.Join(root, ".cluster-demo")
	if keep {
		dir = filepath.Join(root, ".cluster")
	}
	say("starting etcd, API server, controller manager, scheduler and 5 nodes")
	cp, err := controlplane.Start(ctx, controlplane.Options{
		Dir: dir, Program: programs.ControlPlane(), Eviction: controlplane.EvictionTollgate, Detached: keep,
	})
	if errors.Is(err, controlplane.ErrRunning) {
		return fmt.Errorf("%w: run make cluster-down first", err)
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil || !keep {
			err = errors.Join(err, cp.Stop(context.WithoutCancel(ctx)))
			return
		}
		say("left up: export KUBECONFIG=" + cp.Kubeconfig() + "; make cluster-down ends it")
	}()
	say("installing Tollgate: kubectl apply -k deploy/base/rights, tollgate serve with a token of its own, kubectl apply -k deploy/overlays/outside")
	tollgate, err := install.Install(ctx, cp, install.Options{Programs: programs, Patch: shortLease})
	if err != nil {
		return err
	}
	say("replacing kube-scheduler with Tollgate's build of it, which obeys ResourceSlicePatches")
	if err := install.Scheduler(ctx, cp, programs); err != nil {
		return err
	}
	s, err := newStory(out, cp, tollgate, programs)
	if err != nil {
		return err
	}
	if err := s.tell(ctx); err != nil {
		return fmt.Errorf("not as told: %w (logs: %s)", err, filepath.Join(cp.Dir(), "logs"))
	}
	say("all of it was as told")
	return nil
}
