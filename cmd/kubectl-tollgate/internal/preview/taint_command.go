package preview

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

var (
	// taintOutputs are the values of -o; empty prints what was done.
	taintOutputs = []string{"", "name", "yaml", "json"}
	dryRuns      = []string{"none", "client", "server"}
)

// edge has the dependencies of the commands besides the cluster.
type edge struct {
	connect connecting
	clock   clock.PassiveClock
	// terminal reports whether a reader is a terminal.
	terminal func(io.Reader) bool
}

func realEdge() edge {
	return edge{clock: clock.RealClock{}, terminal: cli.Answers}
}

// writing has the common options of both commands.
type writing struct {
	target         Target
	output, dryRun string
}

func (w *writing) addFlags(cmd *cobra.Command) {
	w.target.AddFlags(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&w.output, "output", "o", "", "`format` of what was written: name, yaml, json")
	flags.StringVar(&w.dryRun, "dry-run", dryRuns[0], "`none`, client (write nothing) or server (have the API server judge, and write nothing)")
	flags.Lookup("dry-run").NoOptDefVal = dryRuns[1]
}

func (w *writing) check() error {
	if !slices.Contains(taintOutputs, w.output) {
		return fmt.Errorf("--output is %q, want one of %s", w.output, strings.Join(taintOutputs[1:], ", "))
	}
	if !slices.Contains(dryRuns, w.dryRun) {
		return fmt.Errorf("--dry-run is %q, want one of %s", w.dryRun, strings.Join(dryRuns, ", "))
	}
	return nil
}

// dry returns the dryRun field of requests.
func (w *writing) dry() []string {
	if w.dryRun == "server" {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// suffix returns the end of the message about a write.
func (w *writing) suffix() string {
	switch w.dryRun {
	case "client":
		return " (dry run)"
	case "server":
		return " (server dry run)"
	default:
		return ""
	}
}

// NewTaintCommand returns the command that taints.
func NewTaintCommand() *cobra.Command { return newTaint(realEdge()) }

func newTaint(e edge) *cobra.Command {
	parent := &cobra.Command{
		Use:   "taint",
		Short: "Taint devices (kubectl taint does so for nodes)",
		Args:  cobra.NoArgs,
	}
	t := &taintRun{edge: e}
	cmd := &cobra.Command{
		Use:   "device [DRIVER[/POOL[/DEVICE]]] KEY[=VALUE]:EFFECT...",
		Short: "Taint devices, after a look at which pods that evicts",
		Long: `Taint devices as kubectl taint does nodes. It first shows which pods that evicts (see preview
device), and asks. What is left out of the name of a device is not asked for: all devices of
a pool, or of a driver, are meant.

By names it makes a DeviceTaintRule, which any Kubernetes obeys that serves such; by
--class or --selector a ResourceSlicePatch, which needs Tollgate. The name of the object
follows from devices, key and effect, so that the same devices are not tainted twice; its
label tollgate.dev/made-by and its annotation tollgate.dev/author say where it comes from.
untaint device removes it again. With --overwrite a taint that was made so gets another
value; since when it counts stays.

The effects are NoExecute, which evicts, NoSchedule, and None, which does nothing and says
what NoExecute would do. NoExecute for what stands at None changes that very object, as a
TaintPolicy with requirePreview wants it; it counts from then.

Devices that no ResourceSlice publishes are not tainted without a question that says so, or
--allow-unpublished: --yes is not enough, because the name may be misspelt. The taint is for
devices then that are published later.

The exit code is 1 if nothing was written, also because the answer was no.

You need the right to create devicetaintrules or resourceslicepatches, and with --overwrite
those to get and update them. The preview needs the rights to get them, and to list pods,
nodes and resourceclaims, with --class or --selector resourceslices and deviceclasses too;
with --yes it is left out where you lack them. What else you may not see is named on the
standard error.`,
		Example: `  kubectl tollgate taint device gpu.example.com/node-7/gpu-0 overheating:NoExecute
  kubectl tollgate taint device gpu.example.com/node-7 maintenance=fans:NoSchedule --yes

  # First what it would do, in the status of the rule, and then that.
  kubectl tollgate taint device gpu.example.com/node-7/gpu-1 broken:None --yes
  kubectl tollgate taint device gpu.example.com/node-7/gpu-1 broken:NoExecute

  kubectl tollgate taint device --class gpus --selector 'device.attributes["gpu.example.com"].model == "A100"' recall:NoExecute --dry-run=server`,
	}
	connection := cli.ConnectToAll(cmd)
	if t.connect == nil {
		t.connect = connection.Clients
	}
	t.addFlags(cmd)
	t.wants.AddFlags(cmd)
	cmd.Flags().BoolVar(&t.overwrite, "overwrite", false, "give taints that taint device made another value")
	cmd.Flags().BoolVar(&t.unpublished, "allow-unpublished", false, "taint devices that no ResourceSlice publishes yet")
	cmd.Flags().BoolVarP(&t.yes, "yes", "y", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, arguments []string) error {
		if err := t.parse(arguments); err != nil {
			return err
		}
		return t.run(cmd)
	}
	parent.AddCommand(cmd)
	return parent
}

// NewUntaintCommand returns the command that removes taints.
func NewUntaintCommand() *cobra.Command { return newUntaint(realEdge()) }

func newUntaint(e edge) *cobra.Command {
	parent := &cobra.Command{
		Use:   "untaint",
		Short: "Remove taints that taint device made",
		Args:  cobra.NoArgs,
	}
	u := &untaintRun{edge: e}
	cmd := &cobra.Command{
		Use:   "device [DRIVER[/POOL[/DEVICE]]] KEY[:EFFECT]...",
		Short: "Remove taints of devices that taint device made",
		Long: `Remove taints of devices that taint device made, for the very devices that it made them for.
Without an effect, those of all effects with the key go. Evictions that are pending because
of them end. It does not ask, because no pod leaves by it: --yes is accepted, and changes
nothing, so that scripts can give taint device and untaint device the same flags.

A taint that somebody else made stays: the error says whose it is, and how to remove it. A
driver removes its own. The exit code is 1 if there was no such taint, or not only such. You
need the rights to list and delete devicetaintrules and, where Tollgate is, to list
resourceslicepatches.`,
		Example: `  kubectl tollgate untaint device gpu.example.com/node-7/gpu-0 overheating
  kubectl tollgate untaint device gpu.example.com/node-7 maintenance:NoSchedule
  kubectl tollgate untaint device --class gpus recall`,
	}
	connection := cli.ConnectToAll(cmd)
	if u.connect == nil {
		u.connect = connection.Clients
	}
	u.addFlags(cmd)
	cmd.Flags().BoolP("yes", "y", false, "do not ask, which it never does")
	cmd.RunE = func(cmd *cobra.Command, arguments []string) error {
		if err := u.parse(arguments); err != nil {
			return err
		}
		clients, err := u.connect(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer clients.Progress.End()
		return u.remove(cmd.Context(), clients, cmd.OutOrStdout())
	}
	parent.AddCommand(cmd)
	return parent
}
