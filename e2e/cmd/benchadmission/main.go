// Command benchadmission measures, on one control plane and in one run, what the review of a
// pod costs Tollgate beside a constant answer and beside a webhook of controller-runtime that
// decodes the pod, and what the creation of a pod costs the API server with no policy engine,
// with ValidatingAdmissionPolicies, with that webhook and with Tollgate.
package main

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/command"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	ctrl.SetLogger(logr.Discard())
	cmd := newCommand()
	cmd.SetArgs(args)
	return command.Run(cmd)
}

// options are what the command line says.
type options struct {
	// reviews and pods are how many are measured at a time; zero leaves out the reviews sent
	// straight to the servers, or the pods created through the API server.
	reviews, pods int
	rounds        int
	// plain is the number of rounds in which plain pods are created with and without webhooks.
	plain int
	// beside is the number of rounds in which plain pods are created in a namespace that webhooks cover
	// and in one that they leave out.
	beside int
	// policies are the numbers of policies that are compared, beside none and one. Pods are created
	// under the first.
	policies []int
	// only is what a setting's name matches to be measured; nil means all.
	only     *regexp.Regexp
	dryRun   bool
	quick    bool
	markdown bool
	// command is the command line, for the report.
	command string
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "benchadmission",
		Short:         "Measure what admission costs, straight over HTTPS and through the API server",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.quick {
				o.shrink()
			}
			if min(o.reviews, o.pods, o.plain, o.beside) < 0 || o.rounds < 1 || slices.Min(o.policies) < 1 {
				return errors.New("--rounds and --policies must be at least 1, and --reviews, --pods, --plain and --beside not negative")
			}
			return bench(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.reviews, "reviews", 1000, "reviews sent straight to each server in a round; zero leaves that out")
	flags.IntVar(&o.pods, "pods", 500, "pods of a kind created through the API server, twice in a round for each policy engine; zero leaves that out")
	flags.IntVar(&o.rounds, "rounds", 10, "rounds of either")
	flags.IntVar(&o.plain, "plain", 40, "rounds in which plain pods are created with the webhooks and without; zero leaves that out")
	flags.IntVar(&o.beside, "beside", 40, "rounds in which plain pods are created in a namespace that the webhooks cover and in one that they leave out; zero leaves that out")
	flags.IntSliceVar(&o.policies, "policies", []int{100, 1000}, "numbers of policies, beside none and one; pods are created under one and under the first of these")
	flags.Func("only", "a regular expression: the settings that reviews are measured under, by their names in the table (default all)", func(text string) (err error) {
		o.only, err = regexp.Compile(text)
		return err
	})
	flags.BoolVar(&o.dryRun, "dry-run", false, "create pods as dry runs: admission alone, without etcd and without watches")
	flags.BoolVar(&o.quick, "quick", false, "try it out: few policies, reviews and pods, one round; the figures mean little")
	flags.BoolVar(&o.markdown, "markdown", false, "print the tables as Markdown")
	cmd.AddCommand(newAnswerCommand())
	o.command = strings.Join(append([]string{"go run ./cmd/benchadmission"}, os.Args[1:]...), " ")
	return cmd
}

// shrink leaves few of all. What makes no sense stays as it is.
func (o *options) shrink() {
	o.reviews, o.pods, o.rounds, o.plain, o.beside, o.policies = min(o.reviews, 48), min(o.pods, 24), min(o.rounds, 1), min(o.plain, 1), min(o.beside, 1), []int{10}
}
