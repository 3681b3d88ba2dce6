package preview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// outputs are the values of -o.
var outputs = []string{"table", "wide", "yaml", "json"}

// about is the common part of the help texts.
const about = `
The table has a line for each namespace. PODS are those that would have to leave, or sooner
than they have to: NOW those at once, LATER those that tolerate the taint for a while, the
last of them after LATEST. GUARDED are pods that a PodDisruptionBudget is about, and NO
CONTROLLER those that nobody creates anew. -o wide has a line for each pod, with the taints
because of which it goes and whether they are tolerated for a while, its budgets and its
controller; -o yaml and -o json have all of it.

Where the limits of a TaintPolicy would refuse the write, it says so with what the refusal
would say: maxAffectedPods and maxAffectedPercent, requireSelector, requirePreview and
maxTimeAddedSkew. Who may write is not looked at, and of pods that have left already because
of other writes within the window only Tollgate knows: --dry-run=server asks it.

What EvictionPolicies protect does not go and is counted apart. Whether they count depends
on the eviction mode, which Tollgate says on its Lease. Without Tollgate the answer is for
the controllers of Kubernetes.

The exit code is 2 if more pods would go than --fail-over allows, 1 after an error, else 0.
You need the right to list pods and nodes of all namespaces. What else you may not see is
named on the standard error, with what the answer lacks because of it.`

// exampleSettings are the common options of all previews.
type exampleSettings struct {
	output   string
	failOver int
	wants    state.Wants
	// connect returns the clients; nil uses the flags of the connection.
	connect connecting
	clock   clock.PassiveClock
}

// asked is the request of a command line: the data to read, and its previews.
type asked interface {
	wants(w *state.Wants)
	tell(ctx context.Context, clients *cli.Clients, c *state.Cluster, t *Teller) ([]Preview, error)
}

// NewCommand returns the preview command.
func NewCommand() *cobra.Command { return newCommandFor(clock.RealClock{}, nil) }

// connecting returns clients; nil means those of the flags.
type connecting func(notes io.Writer) (*cli.Clients, error)

func newCommandFor(clk clock.PassiveClock, connect connecting) *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "preview -f FILE",
		Short: "Show which pods a taint would evict, and when, before it is written",
		Long: `Show which pods the taints in manifests would evict, and when, before they are applied. It
looks at Nodes, DeviceTaintRules, ResourceSlices, ResourceSlicePatches, and at what
TaintPolicies register on nodes that there are. Nothing is written.
` + about,
		Example: `  kubectl tollgate preview -f rule.yaml
  kustomize build . | kubectl tollgate preview -f - --fail-over 20
  kubectl tollgate preview node worker-1 maintenance=kernel:NoExecute -o wide
  kubectl tollgate preview device gpu.example.com/node-7/gpu-0 overheating:NoExecute`,
		Args: cobra.NoArgs,
	}
	s := addSettings(cmd, clk, connect)
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "`file` with manifests, - for the standard input; repeat it for several")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(files) == 0 {
			return errors.New("nothing to preview: give -f FILE, or ask for a node or a device")
		}
		objects, err := manifests(files, cmd.InOrStdin())
		if err != nil {
			return err
		}
		return s.run(cmd, objects)
	}
	cmd.AddCommand(newNode(clk, connect), newDevice(clk, connect))
	return cmd
}

func newNode(clk clock.PassiveClock, connect connecting) *cobra.Command {
	asked := &nodes{}
	cmd := &cobra.Command{
		Use:   "node NAME... KEY[=VALUE]:EFFECT... [KEY[:EFFECT]-...]",
		Short: "Show which pods taints on nodes would evict, and when",
		Long: `Show which pods taints on nodes would evict, and when. The arguments are those of kubectl
taint nodes --overwrite: a taint with a dash at its end is taken away, which evicts nobody
and ends evictions that are pending. Only the effect NoExecute evicts.
` + about,
		Example: `  kubectl tollgate preview node worker-1 maintenance=kernel:NoExecute
  kubectl tollgate preview node worker-1 worker-2 maintenance:NoExecute --fail-over 0
  kubectl tollgate preview node -l zone=east maintenance:NoExecute -o json
  kubectl tollgate preview node worker-1 maintenance-`,
	}
	s := addSettings(cmd, clk, connect)
	cmd.Flags().StringVarP(&asked.labels, "selector", "l", "", "nodes with these `labels`, in the place of names")
	cmd.RunE = func(cmd *cobra.Command, arguments []string) error {
		if err := asked.parse(arguments); err != nil {
			return err
		}
		return s.run(cmd, asked)
	}
	return cmd
}

func newDevice(clk clock.PassiveClock, connect connecting) *cobra.Command {
	asked := &devices{}
	cmd := &cobra.Command{
		Use:   "device [DRIVER[/POOL[/DEVICE]]] KEY[=VALUE]:EFFECT...",
		Short: "Show which pods taints on devices would evict, and when",
		Long: `Show which pods taints on devices would evict, and when: those that use a device, through
whatever claim, and do not tolerate its taint. What is left out of the name of the device is
not asked for, as in a DeviceTaintRule. Of the effect None it is said what NoExecute would
do. Devices that no ResourceSlice publishes, and no pod uses, are an error.
` + about,
		Example: `  kubectl tollgate preview device gpu.example.com/node-7/gpu-0 overheating:NoExecute
  kubectl tollgate preview device gpu.example.com/node-7 maintenance:NoExecute -o wide
  kubectl tollgate preview device --class gpus --selector 'device.attributes["gpu.example.com"].model == "A100"' recall:NoExecute`,
	}
	s := addSettings(cmd, clk, connect)
	asked.target.AddFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, arguments []string) error {
		rest, err := asked.target.Take(arguments, IsTaint)
		if err != nil {
			return err
		}
		if err := asked.parse(rest); err != nil {
			return err
		}
		return s.run(cmd, asked)
	}
	return cmd
}

// addSettings adds the flags of all previews.
func addSettings(cmd *cobra.Command, clk clock.PassiveClock, connect connecting) *exampleSettings {
	connection := cli.ConnectToAll(cmd)
	if connect == nil {
		connect = connection.Clients
	}
	s := &exampleSettings{output: outputs[0], clock: clk, connect: connect}
	flags := cmd.Flags()
	flags.StringVarP(&s.output, "output", "o", s.output, "`format`: "+strings.Join(outputs, ", "))
	flags.IntVar(&s.failOver, "fail-over", -1, "exit with 2 if more than this `number` of pods would go; not if it is negative")
	s.wants.AddFlags(cmd)
	return s
}

// run validates the flags, connects and writes the previews.
func (s *exampleSettings) run(cmd *cobra.Command, asked asked) error {
	if !slices.Contains(outputs, s.output) {
		return fmt.Errorf("--output is %q, want one of %s", s.output, strings.Join(outputs, ", "))
	}
	clients, err := s.connect(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	return s.show(cmd.Context(), clients, asked, s.clock.Now(), cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// show reads the cluster, and writes previews to out and missing data to notes.
func (s *exampleSettings) show(ctx context.Context, clients *cli.Clients, asked asked, now time.Time, out, notes io.Writer) error {
	var owners Owners
	wants := s.wants
	wants.Pod, wants.Limits = owners.Pod, true
	asked.wants(&wants)
	c, err := state.Read(ctx, clients, now, wants)
	var all []Preview
	teller := (*Teller)(nil)
	if err == nil {
		teller = NewTeller(c, &owners)
		all, err = asked.tell(ctx, clients, c, teller)
	}
	clients.Progress.End()
	if err != nil {
		return err
	}
	if err := s.write(teller, out, all); err != nil {
		return err
	}
	for _, lack := range c.Missing() {
		if _, err := fmt.Fprintln(notes, "note: "+lack); err != nil {
			return fmt.Errorf("write notes: %w", err)
		}
	}
	if going := Going(all); s.failOver >= 0 && going > s.failOver {
		return &cli.VerdictError{Reason: fmt.Sprintf("pods that would go: %d, more than the %d of --fail-over", going, s.failOver)}
	}
	return nil
}

func (s *exampleSettings) write(teller *Teller, out io.Writer, all []Preview) error {
	switch s.output {
	case "yaml":
		return teller.WriteYAML(out, all)
	case "json":
		return teller.WriteJSON(out, all)
	default:
		return teller.Write(out, s.output == "wide", all)
	}
}

// manifests reads the objects of files.
func manifests(names []string, stdin io.Reader) (*objects, error) {
	found := &objects{}
	for _, name := range names {
		if name == "-" {
			if err := found.read("standard input", stdin); err != nil {
				return nil, err
			}
			continue
		}
		if err := found.open(name); err != nil {
			return nil, err
		}
	}
	if len(found.list) == 0 {
		return nil, errors.New("nothing to preview: there are no objects in what -f names")
	}
	return found, nil
}

func (o *objects) open(name string) error {
	file, err := os.Open(name) //nolint:gosec // The user names the file.
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	defer func() { _ = file.Close() }()
	return o.read(name, file)
}
