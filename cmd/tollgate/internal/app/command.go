package app

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
)

// NewCommand returns the command of the server.
func NewCommand() *cobra.Command {
	version := new(bool)
	root := &cobra.Command{
		Use:   "tollgate",
		Short: "Decide who may pass a taint, and evict safely those who may not stay",
		Long: `Tollgate decides who may tolerate the taints of a Kubernetes cluster, writes
into node taints the time from which they count, and evicts pods from nodes with
NoExecute taints, on time and never the wrong one.

This is the server. The commands for people are those of kubectl tollgate, which is the
program kubectl-tollgate.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !*version {
				return cmd.Help()
			}
			return printVersion(cmd)
		},
		// A server needs no shell completion.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	// Cobra's version flag links text/template into the program.
	root.Flags().BoolVar(version, "version", false, "print the version")
	root.AddCommand(newServeCommand(), newVersionCommand())
	return root
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return printVersion(cmd) },
	}
}

func printVersion(cmd *cobra.Command) error {
	_, err := fmt.Fprint(cmd.OutOrStdout(), settings.Origin())
	return err
}
