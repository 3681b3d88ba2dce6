package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/command"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/filelock"
)

func main() {
	os.Exit(command.Run(newCommand()))
}

// cluster is what the subcommands work on.
type cluster struct {
	dir      string
	programs binaries.Binaries
	progress func(step string)
}

func newCommand() *cobra.Command {
	var c cluster
	var kubernetes string
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "Keep a local Kubernetes control plane with Tollgate in it",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			root, err := binaries.Root(".")
			if err != nil {
				return err
			}
			if c.dir == "" {
				c.dir = filepath.Join(root, ".cluster")
			}
			c.progress = stopwatch(cmd.OutOrStdout())
			version, err := binaries.Version(kubernetes)
			if err != nil {
				return err
			}
			c.programs = binaries.Binaries{Root: root, Kubernetes: version, Progress: c.progress}
			return nil
		},
	}
	root.PersistentFlags().StringVar(&c.dir, "dir", "", "directory of the control plane (default .cluster at the root of the repository)")
	root.PersistentFlags().StringVar(&kubernetes, "kubernetes", binaries.KubernetesVersion,
		"version of the control plane: "+strings.Join(binaries.Versions(), ", "))
	root.AddCommand(c.buildCommand(), c.upCommand(), c.downCommand())
	return root
}

func (c *cluster) buildCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the control plane",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.buildControlPlane(cmd.Context()); err != nil || !all {
				return err
			}
			return errors.Join(c.programs.BuildTollgate(cmd.Context()), c.programs.BuildPlugin(cmd.Context()))
		},
	}
	cmd.Flags().BoolVar(&all, "programs", false, "build Tollgate and the plugin of kubectl, too")
	return cmd
}

func (c *cluster) upCommand() *cobra.Command {
	want := settings{}
	var eviction, scheduler string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the control plane and install Tollgate, unless they are up",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			want.kubernetes, want.eviction = c.programs.Kubernetes, controlplane.Eviction(eviction)
			var err error
			if want.scheduler, err = schedulerFor(scheduler, want); err != nil {
				return err
			}
			return c.locked(cmd.Context(), func() error { return c.up(cmd.Context(), want) })
		},
	}
	cmd.Flags().IntVar(&want.nodes, "nodes", controlplane.DefaultNodes, "how many nodes")
	cmd.Flags().StringVar(&eviction, "eviction", string(controlplane.EvictionTollgate),
		"who acts on NoExecute taints: tollgate, builtin or both")
	cmd.Flags().StringVar(&scheduler, "scheduler", "",
		"which kube-scheduler runs: tollgate, which allocates devices as ResourceSlicePatches make them, or stock (default tollgate, and stock without Tollgate or with an older Kubernetes)")
	cmd.Flags().BoolVar(&want.tollgate, "tollgate", true, "install Tollgate")
	return cmd
}

func (c *cluster) downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End what up has started, and remove all but the logs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.locked(cmd.Context(), func() error { return c.down(cmd.Context()) })
		},
	}
}

// locked keeps two commands from working on one control plane at once.
func (c *cluster) locked(ctx context.Context, work func() error) error {
	release, err := filelock.Acquire(ctx, c.dir)
	if err != nil {
		return err
	}
	defer release()
	return work()
}

func (c *cluster) buildControlPlane(ctx context.Context) error {
	c.progress("building Kubernetes " + c.programs.Kubernetes + ", etcd and kwok from their Go modules (minutes the first time)")
	return c.programs.BuildControlPlane(ctx)
}

// stopwatch prints each step with the seconds since the start.
func stopwatch(w io.Writer) func(step string) {
	start := time.Now()
	return func(step string) {
		_, _ = fmt.Fprintf(w, "%6.1fs  %s\n", time.Since(start).Seconds(), step)
	}
}
