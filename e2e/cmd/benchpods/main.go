// Command benchpods measures what the whole of Tollgate uses for a pod that is created while it knows
// many: its webhooks, its watches and its evictor.
package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/command"
)

func main() {
	os.Exit(command.Run(newCommand()))
}

// options are what the command line says.
type options struct {
	pods, nodes, rate, seconds int
	markdown                   bool
	// command is the command line, for the report.
	command string
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "benchpods",
		Short:         "Measure what Tollgate uses for a pod that is created, scheduled and started beside many",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.nodes < 1 || o.rate < 1 || o.seconds < 1 || o.pods < 0 {
				return errors.New("--nodes, --rate and --seconds must be at least 1, and --pods not negative")
			}
			return bench(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.pods, "pods", 12_000, "pods with a claim each that are there before anything is measured")
	flags.IntVar(&o.nodes, "nodes", 100, "nodes, on which the devices are")
	flags.IntVar(&o.rate, "rate", 50, "pods created in a second")
	flags.IntVar(&o.seconds, "seconds", 40, "how long pods of a kind are created")
	flags.BoolVar(&o.markdown, "markdown", false, "print the table as Markdown")
	o.command = strings.Join(append([]string{"go run ./cmd/benchpods"}, os.Args[1:]...), " ")
	return cmd
}
