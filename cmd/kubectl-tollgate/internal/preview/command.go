package preview

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

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

// query is the subject of a preview, as the command line has it.
type query interface {
	// complete reads the arguments.
	complete(cmd *cobra.Command, arguments []string) error
	// wants selects the data to read.
	wants(w *state.Wants)
	previews(ctx context.Context, t *Teller) ([]Preview, error)
}

// command is one run of a preview.
type command struct {
	query
	edge

	output   cli.Output
	failOver int
	wants    state.Wants
}

// NewCommand returns the preview command.
func NewCommand() *cobra.Command { return newPreview(realEdge()) }

func newPreview(e edge) *cobra.Command {
	objects := &objects{}
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
	cmd.Flags().StringArrayVarP(&objects.files, "filename", "f", nil, "`file` with manifests, - for the standard input; repeat it for several")
	addPreview(cmd, e, objects)
	cmd.AddCommand(newNode(e), newDevice(e))
	return cmd
}

func newNode(e edge) *cobra.Command {
	nodes := &nodes{}
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
	cmd.Flags().StringVarP(&nodes.labels, "selector", "l", "", "nodes with these `labels`, in the place of names")
	addPreview(cmd, e, nodes)
	return cmd
}

func newDevice(e edge) *cobra.Command {
	devices := &devices{}
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
	devices.target.AddFlags(cmd)
	addPreview(cmd, e, devices)
	return cmd
}

// addPreview makes cmd preview a query.
func addPreview(cmd *cobra.Command, e edge, q query) {
	c := &command{query: q, edge: e}
	c.addConnection(cmd)
	c.output.AddFlag(cmd, "`format`", "table", "wide", "yaml", "json")
	cmd.Flags().IntVar(&c.failOver, "fail-over", -1, "exit with 2 if more than this `number` of pods would go; not if it is negative")
	c.wants.AddFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, arguments []string) error {
		if err := c.complete(cmd, arguments); err != nil {
			return err
		}
		if err := c.output.Validate(); err != nil {
			return err
		}
		return c.run(cmd)
	}
}

// run reads the cluster, and writes the previews, and notes about missing data.
func (c *command) run(cmd *cobra.Command) error {
	clients, err := c.connect(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	wants := c.wants
	c.query.wants(&wants)
	var all []Preview
	teller, err := NewTeller(cmd.Context(), clients, c.clock.Now(), wants)
	if err == nil {
		all, err = c.previews(cmd.Context(), teller)
	}
	clients.Progress.End()
	if err != nil {
		return err
	}
	if err := teller.Write(cmd.OutOrStdout(), c.output.Format, all); err != nil {
		return err
	}
	if err := teller.writeMissing(cmd.ErrOrStderr()); err != nil {
		return err
	}
	if going := Going(all); c.failOver >= 0 && going > c.failOver {
		return &cli.VerdictError{Reason: fmt.Sprintf("pods that would go: %d, more than the %d of --fail-over", going, c.failOver)}
	}
	return nil
}
