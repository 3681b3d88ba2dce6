// Package approve is the command that approves evictions that a breaker holds.
package approve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// The values of some flags.
var (
	outputs = []string{"", "name", "yaml", "json"}
	dryRuns = []string{dryRunNone, dryRunClient, dryRunServer}
)

const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// options are the parsed flags and arguments.
type options struct {
	target target
	// taint is the key of the taint, empty for all taints with held pods.
	taint string
	// pods is the approved number of pods, 0 for the number held.
	pods   int32
	expiry time.Duration
	yes    bool
	output string
	dryRun string
	wants  state.Wants
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	opts := &options{}
	cmd := &cobra.Command{
		Use:   "approve node|rule|patch|policy NAME",
		Short: "Let pods go that a breaker holds, or a limit would",
		Long: `Create EvictionApprovals: they let pods go because of one taint of one node, DeviceTaintRule
or ResourceSlicePatch, although the breaker of an EvictionPolicy holds them, or the limits of
a TaintPolicy would refuse the taint.

It shows which pods are held, asks, and approves as many: for each taint of the object, or,
with policy, for each taint of each object because of which that EvictionPolicy holds pods.
--pods approves more or fewer. For a taint that is yet to come, give --taint and --pods: the
node has to exist then, the DeviceTaintRule or ResourceSlicePatch may be yet to come as well.

An approval is used once, for one appearance of the taint, within the time of --for. Which
pods leave is for Tollgate to say: of those that are held, the first that it comes to. What
is not for an approval to end (a pause, protection, budgets) goes on.

The exit code is 1 on errors, and when the answer is no, else 0. It needs the rights of
"kubectl tollgate evictions", and the verb create on evictionapprovals of API group tollgate.dev.`,
		Example: `  kubectl tollgate approve node node-7
  kubectl tollgate approve policy default --yes
  kubectl tollgate approve rule quarantine --taint example.com/broken --pods 120 --for 30m --dry-run=server`,
		Args:      cobra.ExactArgs(2),
		ValidArgs: kindNames(),
	}
	connection := cli.ConnectToAll(cmd)
	opts.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := opts.complete(args); err != nil {
			return err
		}
		clients, err := connection.Clients(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return run(cmd.Context(), clients, clock.RealClock{}, opts, streams{in: cmd.InOrStdin(), out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr()})
	}
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.taint, "taint", "", "only for the taint with this `key`")
	flags.Int32Var(&o.pods, "pods", 0, "how many pods may go, a `number`; 0 for those that are held")
	flags.DurationVar(&o.expiry, "for", time.Hour, "for how long the approval can be used, a `duration`")
	flags.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	flags.StringVarP(&o.output, "output", "o", "", "`format` of what is created: name, yaml, json")
	flags.StringVar(&o.dryRun, "dry-run", dryRunNone, "`none`, client (create nothing) or server (have the API server check it, and create nothing)")
	o.wants.AddFlags(cmd)
	flags.Lookup("dry-run").NoOptDefVal = dryRunClient // as kubectl had it
}

// complete sets the options from the command line, or returns what is invalid.
func (o *options) complete(args []string) error {
	const longest = 7 * 24 * time.Hour
	var err error
	if o.target, err = targetOf(args[0], args[1]); err != nil {
		return err
	}
	switch {
	case !slices.Contains(outputs, o.output):
		return fmt.Errorf("--output is %q, want one of %s", o.output, strings.Join(outputs[1:], ", "))
	case !slices.Contains(dryRuns, o.dryRun):
		return fmt.Errorf("--dry-run is %q, want one of %s", o.dryRun, strings.Join(dryRuns, ", "))
	case o.pods < 0:
		return fmt.Errorf("--pods is %d, want 1 or more, or 0 for the pods that are held", o.pods)
	case o.expiry <= 0 || o.expiry > longest:
		return fmt.Errorf("--for is %s, want more than 0s and at most %s", o.expiry, longest)
	}
	return nil
}

// streams are the input and outputs of the command.
type streams struct {
	in         io.Reader
	out, notes io.Writer
}

// errNo means that the answer was no.
var errNo = errors.New("nothing was approved")

func run(ctx context.Context, clients *cli.Clients, clk clock.PassiveClock, opts *options, to streams) error {
	if err := served(ctx, clients); err != nil {
		return err
	}
	now := clk.Now()
	shown, found, missing, err := evictions.Read(ctx, clients, now, opts.wants)
	clients.Progress.End()
	if err != nil {
		return err
	}
	lacking, err := opts.target.check(found)
	if err != nil {
		return err
	}
	wanted, err := plan(shown.List(now, &evictions.Filter{}), opts)
	if err != nil {
		return err
	}
	if err := tell(to.notes, slices.Concat(missing, lacking, wanted.sentences(now, opts.expiry))); err != nil {
		return err
	}
	if opts.dryRun == dryRunNone && !opts.yes {
		agreed, err := cli.Confirm(ctx, to.in, to.notes, "Approve?")
		if err != nil {
			return err
		}
		if !agreed {
			return errNo
		}
	}
	return create(ctx, clients, wanted, opts, to.out)
}

func tell(to io.Writer, sentences []string) error {
	for _, sentence := range sentences {
		if _, err := fmt.Fprintln(to, strings.Join(cli.Wrapped(sentence, cli.Width), "\n")); err != nil {
			return fmt.Errorf("write notes: %w", err)
		}
	}
	return nil
}
