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
	// specs selects the groups of specs.yaml by a part of their name; empty is all.
	specs string
	// nodes is how many nodes each control plane has.
	nodes int
	// procs is how many specs run at once on each control plane, of those that may.
	procs int
	// seed is the order of the specs, the same on both control planes; zero is one by chance.
	seed int64
	// tollgateArgs are further arguments of Tollgate.
	tollgateArgs []string
	// update has the table written into docs/parity.md.
	update bool
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "conformance",
		Short:         "Run Kubernetes' own end-to-end specs with Tollgate and without, and compare them",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.update && (o.specs != "" || len(o.tollgateArgs) > 0) {
				return errors.New("--update needs all specs and Tollgate as it is: leave out --specs and --tollgate-args")
			}
			return conform(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.specs, "specs", "", "run only the groups of specs.yaml that have this in their name")
	flags.IntVar(&o.nodes, "nodes", 3, "how many nodes each control plane has")
	flags.IntVar(&o.procs, "procs", 4, "how many specs run at once on each control plane, of those that may")
	flags.Int64Var(&o.seed, "seed", 0, "the order of the specs, which the command prints; 0 is one by chance")
	flags.StringSliceVar(&o.tollgateArgs, "tollgate-args", nil, "further arguments of Tollgate, such as --components=webhook, which leaves out the evictor")
	flags.BoolVar(&o.update, "update", false, "write the table into docs/parity.md if the comparison succeeds")
	return cmd
}
