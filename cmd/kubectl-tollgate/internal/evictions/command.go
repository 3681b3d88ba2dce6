// Package evictions is the command that shows which pods have to leave because of NoExecute
// taints, when, what holds them, and which object says so: as a list, a table, a document, or a
// screen that is redrawn. The input is the objects that a Feed reads, once or by watches, and the
// time.
//
// The rules of the evictor compute the deadline of a pod from taints and tolerations. Holds are
// computed from the specs of EvictionPolicies, or read from the status of policies, rules and
// PodDisruptionBudgets and from events. Tollgate's state in memory is not available: a pod
// without a visible hold is due.
package evictions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker"
)

// options are the parsed flags and arguments.
type options struct {
	filter        Filter
	output        cli.Output
	allNamespaces bool
	watch         bool
	untilDone     bool
	timeout       time.Duration
	wants         state.Wants
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "evictions",
		Short: "Show which pods have to leave, when, and what keeps them",
		Long: `Show every pod that has to leave because of a NoExecute taint: when it is due, what keeps it,
and which taint of which node, ResourceSlice, DeviceTaintRule or ResourceSlicePatch is the
reason.

WHEN is the time until the pod is due, or since it was due. STATE is one of

  Leaving    the deletion of the pod has begun
  Due        the pod is due, and nothing is known to keep it
  Waiting    the pod tolerates the taint until then
  Blocked    the pod is due, and a PodDisruptionBudget or a webhook refuses its eviction
  Held       the pod is due, and Tollgate holds it: a breaker has tripped, all nodes are
             down, or the pod returns to the taint again and again
  Paused     the EvictionPolicy of the pod is paused
  Protected  the EvictionPolicy protects the pod, which stays

The pods that leave first come first. The command computes which pods are due, and when, from
taints, tolerations and the specs of EvictionPolicies. It reads the rest from the statuses of
EvictionPolicies, PodDisruptionBudgets and DeviceTaintRules, and from events. -o wide, yaml and
json name the source for each pod, all taints with the client that wrote each, and absolute
times. Without Tollgate, and in mode Observe, the controllers of Kubernetes delete pods when
they are due. They ask neither budgets nor policies.

-w watches until you interrupt it. On a terminal it draws a picture each second, with a bar for
each object whose taints evict pods. Otherwise it writes a line for each change. --until-done
ends the watch when only protected pods are left. The exit code is 2 if --timeout ends it
before that, 1 after an error, and otherwise 0. It is an error too if the named node, rule or
patch does not exist, or if you may not list all sources of taints: nodes, resourceclaims,
resourceslices and devicetaintrules.

You need the verb list (with -w also watch) on pods and nodes; for one namespace, on the pods
of that namespace is enough. The command shows more with the same verbs on namespaces,
poddisruptionbudgets, events, evictionpolicies, resourceclaims, resourceslices and
devicetaintrules, and with get on the Lease tollgate in the namespace of Tollgate.`,
		Example: `  kubectl tollgate evictions -A
  kubectl tollgate evictions --node node-7 -o wide
  kubectl tollgate evictions -A -w
  kubectl tollgate evictions --rule quarantine --until-done --timeout 10m`,
		Args: cobra.NoArgs,
	}
	connection := cli.Connect(cmd)
	opts := newOptions(cmd)
	state.CompleteFlags(cmd, connection, "node", "rule", "patch")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := opts.complete(connection); err != nil {
			return err
		}
		clients, err := connection.Clients(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		to := streams{out: out, notes: cmd.ErrOrStderr(), terminal: cli.Terminal(out), size: sizeOf(out), colour: cli.Colours(out)}
		if opts.watch {
			return follow(cmd.Context(), clients, opts, viewOf(opts, to))
		}
		return show(cmd.Context(), clients, time.Now(), opts, to)
	}
	return cmd
}

// newOptions adds the flags to a command, and returns their values.
func newOptions(cmd *cobra.Command) *options {
	opts := &options{}
	flags := cmd.Flags()
	opts.output.AddFlag(cmd, "`format`", "table", "wide", "yaml", "json", "name")
	flags.BoolVarP(&opts.allNamespaces, "all-namespaces", "A", false, "pods of all namespaces; the default with --node, --rule and --patch unless you set -n")
	flags.StringVar(&opts.filter.Node, "node", "", "only pods on the node of this `name`")
	flags.StringVar(&opts.filter.Rule, "rule", "", "only pods that leave because of the DeviceTaintRule of this `name`")
	flags.StringVar(&opts.filter.Patch, "patch", "", "only pods that leave because of the ResourceSlicePatch of this `name`")
	flags.BoolVarP(&opts.watch, "watch", "w", false, "watch until you interrupt the command")
	flags.BoolVar(&opts.untilDone, "until-done", false, "watch until no pod has to leave any more")
	flags.DurationVar(&opts.timeout, "timeout", 0, "maximum `duration` of --until-done; 0 for no maximum")
	opts.wants.AddFlags(cmd)
	return opts
}

// complete sets the options from the command line, or returns an error if they are invalid.
func (o *options) complete(connection *cli.Connection) error {
	if o.watch = o.watch || o.untilDone; o.watch {
		o.output.Formats, o.output.Whole = []string{"table", "json"}, true
	}
	switch err := o.output.Validate(); {
	case err != nil:
		return err
	case o.timeout < 0:
		return fmt.Errorf("--timeout is %s, want 0s or more", o.timeout)
	case o.timeout > 0 && !o.untilDone:
		return errors.New("--timeout says when to give up: give --until-done as well")
	}
	namespace, given, err := connection.Namespace()
	if err != nil {
		return err
	}
	if o.allNamespaces || (o.filter != Filter{} && !given) {
		namespace = ""
	}
	o.filter.Namespace, o.wants.Namespace = namespace, namespace
	return nil
}

// streams are the outputs of the command and the properties of the terminal.
type streams struct {
	out, notes io.Writer
	// terminal is true if out is a terminal, colour if it has colours.
	terminal, colour bool
	// size returns the width and height of the terminal.
	size func() (width, height int)
}

// show writes the current list.
func show(ctx context.Context, clients *cli.Clients, now time.Time, opts *options, to streams) error {
	shown, found, err := Read(ctx, clients, now, opts.wants)
	clients.Progress.End()
	if err != nil {
		return err
	}
	if err := opts.check(found); err != nil {
		return err
	}
	list, output := shown.List(now, &opts.filter), opts.output.Format
	if output != "table" && output != "name" {
		if err := AddWriters(ctx, clients, found, list); err != nil {
			return err
		}
	}
	notes := found.Missing()
	switch {
	case cli.IsDocument(output):
		err = WriteDocument(to.out, output, list, now)
	case output == "name":
		err = WriteNames(to.out, list)
	default:
		if len(list) == 0 {
			notes = append(notes, "no pod has to leave"+where(&opts.filter))
		}
		notes = append(notes, Notes(list, now)...)
		err = WriteTable(to.out, list, now, output == "wide", to.colour)
	}
	if err != nil {
		return err
	}
	return cli.WriteWrapped(to.notes, "", notes)
}

// check returns an error if the object of a filter does not exist, unless the user may not list such
// objects, or with untilDone if a resource that evicts pods could not be read.
func (o *options) check(found *state.Cluster) error {
	var lacks []string
	for _, resource := range evicting {
		if o.untilDone && found.Unread(resource.Resource) {
			lacks = append(lacks, "you may not list "+resource.Resource+cli.AskFor("list", resource))
		}
	}
	if len(lacks) > 0 {
		return fmt.Errorf("whether no pod has to leave cannot be told: %s", strings.Join(lacks, "; "))
	}
	filter := &o.filter
	for _, object := range []struct {
		kind           tracker.SourceKind
		resource, name string
	}{
		{tracker.SourceNode, "nodes", filter.Node},
		{tracker.SourceRule, "devicetaintrules", filter.Rule},
		{tracker.SourcePatch, "resourceslicepatches", filter.Patch},
	} {
		if object.name != "" && !found.Has(object.kind, object.name) && !found.Unread(object.resource) {
			return fmt.Errorf("there is no %s %s", object.kind.Object(), object.name)
		}
	}
	if filter.Patch != "" && o.untilDone && found.Unread("resourceslicepatches") {
		return fmt.Errorf("whether there is a ResourceSlicePatch %s cannot be told: %s", filter.Patch, strings.Join(found.Missing(), "; "))
	}
	return nil
}

// where describes a filter.
func where(filter *Filter) string {
	parts := []string{
		"in namespace " + filter.Namespace, "on node " + filter.Node,
		"because of DeviceTaintRule " + filter.Rule, "because of ResourceSlicePatch " + filter.Patch,
	}
	parts = slices.DeleteFunc(parts, func(part string) bool { return strings.HasSuffix(part, " ") }) // They have no name.
	return strings.TrimRight(" "+strings.Join(parts, ", "), " ")
}
