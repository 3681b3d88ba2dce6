// Command benchschedule measures, on one control plane and in one run, how fast
// kube-scheduler and the scheduler of this repository give pods their devices while
// there are no ResourceSlicePatches.
package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/command"
)

func main() {
	os.Exit(command.Run(newCommand()))
}

// options are what the command line says.
type options struct {
	pods, nodes, rounds int
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "benchschedule",
		Short:         "Measure the scheduling of pods with devices by kube-scheduler and by ours, without patches",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.nodes < 1 || o.rounds < 1 || o.pods < 2 || o.pods%o.nodes != 0 {
				return errors.New("--nodes and --rounds must be at least 1, and --pods a multiple of the nodes")
			}
			return bench(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.pods, "pods", 300, "pods to schedule, each with a claim of one device")
	flags.IntVar(&o.nodes, "nodes", 50, "nodes, on which the devices are")
	flags.IntVar(&o.rounds, "rounds", 2, "rounds, in each of which both schedule twice: stock, ours, ours, stock")
	return cmd
}
