package preview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// simulateCommand is one run of the command simulate.
type simulateCommand struct {
	edge
	cli.Output

	files    []string
	at       []string
	timeline string
	lasts    time.Duration
	force    bool
	wants    state.Wants

	steps      []step
	in         io.Reader
	out, notes io.Writer
}

// NewSimulateCommand returns the command simulate.
func NewSimulateCommand() *cobra.Command {
	c := &simulateCommand{edge: realEdge}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Play taints over time, and show which pods leave and when",
		Long: `Play a list of taints over time on a copy of the cluster, or on the objects of manifests, and show
which pods leave and when, what EvictionPolicies hold, and which writes the limits of TaintPolicies
refuse. Nothing is written to the cluster.

A step is a time after the beginning, the nodes or devices, and taints as for kubectl taint:

  0s node n1 n2 example.com/down:NoExecute
  60s nodes rack=7 example.com/hot:NoExecute
  2m device gpu.example.com/rack-7/gpu-0 example.com/broken:NoExecute
  1h node n1 example.com/down-

Give steps with --at, or a file of them with --timeline, one in a line. A step that a TaintPolicy
refuses is not played, unless you set --force.

The simulation uses the decisions and the checks of Tollgate: tolerations and their seconds,
policies, paces, breakers, PodDisruptionBudgets and the state of all nodes. It is exact to a few
seconds: a breaker of Tollgate counts a pod for some seconds longer, and requests take time. No
controller replaces pods in it, so that a PodDisruptionBudget that has no disruptions left stays so,
and no pod returns to a taint.

Manifests are read with -f: nodes, pods with spec.nodeName, namespaces, PodDisruptionBudgets,
ResourceClaims with their allocations, ResourceSlices, DeviceTaintRules and policies. Tollgate then
counts as installed with the default configuration. With the live cluster you need the rights for
"kubectl tollgate preview".

The exit code is 1 after an error, and otherwise 0.`,
		Example: `  kubectl tollgate simulate --at '0s nodes rack=7 example.com/hot:NoExecute'
  kubectl tollgate simulate -f cluster/ --timeline rack-7.txt -o svg > rack-7.svg`,
		Args: cobra.NoArgs,
	}
	c.addConnection(cmd)
	flags := cmd.Flags()
	c.AddFlag(cmd, "`format`", "text", "yaml", "json", "svg")
	flags.StringSliceVarP(&c.files, "filename", "f", nil, "`files` and directories of manifests, in the place of the cluster; - is standard input")
	flags.StringArrayVar(&c.at, "at", nil, "`step`; repeat it for several")
	flags.StringVar(&c.timeline, "timeline", "", "`file` of steps, one in a line")
	flags.DurationVar(&c.lasts, "for", 24*time.Hour, "longest `duration` that is played")
	flags.BoolVar(&c.force, "force", false, "play steps that TaintPolicies refuse")
	c.wants.AddFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c.in, c.out, c.notes = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		if err := c.complete(); err != nil {
			return err
		}
		return c.run(cmd.Context())
	}
	return cmd
}

// complete reads the steps, or returns an error if they or the flags are invalid.
func (c *simulateCommand) complete() error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.lasts <= 0 {
		return fmt.Errorf("--for is %s, want more than 0s", c.lasts)
	}
	if c.timeline != "" {
		file, err := os.Open(c.timeline)
		if err != nil {
			return fmt.Errorf("read --timeline: %w", err)
		}
		defer file.Close()
		if c.steps, err = readSteps(c.timeline, file); err != nil {
			return err
		}
	}
	for _, text := range c.at {
		s, err := parseStep(text)
		if err != nil {
			return err
		}
		c.steps = append(c.steps, s)
	}
	if len(c.steps) == 0 {
		return errors.New("nothing to play: give --at STEP or --timeline FILE")
	}
	return nil
}

// run reads the cluster, plays the steps and writes what happens.
func (c *simulateCommand) run(ctx context.Context) error {
	cluster, err := c.cluster(ctx)
	if err != nil {
		return err
	}
	d, err := play(ctx, cluster, c.steps, c.lasts, c.force)
	if err != nil {
		return err
	}
	var text, what string
	switch c.Format {
	case "text":
		text, what = d.text(), "simulation"
	case "svg":
		text, what = d.draw(), "picture"
	default:
		return cli.Print(c.out, c.Format, d)
	}
	if _, err := io.WriteString(c.out, text); err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return cli.WriteWrapped(c.notes, "note: ", d.Missing)
}

// cluster reads the cluster, or the manifests.
func (c *simulateCommand) cluster(ctx context.Context) (*state.Cluster, error) {
	if len(c.files) > 0 {
		objects, err := cli.ReadManifests(c.files, c.in)
		if err != nil {
			return nil, err
		}
		return state.FromManifests(objects, c.clock.Now())
	}
	clients, err := c.connect(c.notes)
	if err != nil {
		return nil, err
	}
	c.wants.Limits = true
	cluster, err := state.Read(ctx, clients, c.clock.Now(), c.wants)
	clients.Progress.End()
	return cluster, err
}
