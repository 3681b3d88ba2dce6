package preview

import (
	"context"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// about is the common part of the help texts.
const about = `
The table has a line for each namespace. PODS is the number of pods that would have to leave,
or would have to leave sooner. NOW is the number that would leave at once, and LATER the number
that tolerate the taint for some time; LATEST is when the last of them would leave. GUARDED is
the number of pods that a PodDisruptionBudget selects, and NO CONTROLLER the number of pods that
no controller creates again. -o wide has a line for each pod, with the taints that evict it,
whether the pod tolerates them for some time, its budgets and its controller. -o yaml and -o
json have all data.

If the limits of a TaintPolicy would refuse the write, the command shows the message of the
refusal. It evaluates maxAffectedPods, maxAffectedPercent, requireSelector, requirePreview and
maxTimeAddedSkew. It does not evaluate which users may write. Only Tollgate knows the pods that
left because of other writes within the window: --dry-run=server asks Tollgate.

Pods that an EvictionPolicy protects do not leave, and count separately. Whether
EvictionPolicies apply depends on the eviction mode, which the command reads from the Lease of
Tollgate. Without Tollgate, the answer describes the controllers of Kubernetes.

The exit code is 2 if more pods would leave than --fail-over allows, 1 after an error, and
otherwise 0. You need the right to list pods and nodes of all namespaces. Standard error names
other objects that you may not read, and the missing parts of the answer.`

// query reads the arguments of a command line. It selects the data to read, and returns the previews.
type query func(arguments []string, wants *state.Wants) (previews, error)

// previews previews the writes of a command line on a cluster.
type previews func(ctx context.Context, t *Teller) ([]Preview, error)

// NewCommand returns the preview command.
func NewCommand() *cobra.Command { return newPreview(realEdge) }

func newPreview(e edge) *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "preview -f FILE",
		Short: "Show which pods a taint would evict, and when, before it is written",
		Long: `Show which pods the taints in manifests would evict, and when, before you apply the manifests.
The command reads Nodes, DeviceTaintRules, ResourceSlices and ResourceSlicePatches, and the
taints that TaintPolicies register on existing nodes. It writes nothing.
` + about,
		Example: `  kubectl tollgate preview -f rule.yaml
  kustomize build . | kubectl tollgate preview -f - --fail-over 20
  kubectl tollgate preview node worker-1 maintenance=kernel:NoExecute -o wide
  kubectl tollgate preview device gpu.example.com/node-7/gpu-0 overheating:NoExecute`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "`file` with manifests, - for the standard input; repeat it for several")
	addPreview(cmd, e, func(_ []string, wants *state.Wants) (previews, error) { return ofFiles(files, cmd.InOrStdin(), wants) })
	cmd.AddCommand(newNode(e), newDevice(e))
	return cmd
}

func newNode(e edge) *cobra.Command {
	var selector string
	cmd := &cobra.Command{
		Use:   "node NAME... KEY[=VALUE]:EFFECT... [KEY[:EFFECT]-...]",
		Short: "Show which pods taints on nodes would evict, and when",
		Long: `Show which pods taints on nodes would evict, and when. The arguments are those of kubectl
taint nodes --overwrite. A dash at the end of a taint removes the taint, which evicts no pods
and ends pending evictions. Only the effect NoExecute evicts pods.
` + about,
		Example: `  kubectl tollgate preview node worker-1 maintenance=kernel:NoExecute
  kubectl tollgate preview node worker-1 worker-2 maintenance:NoExecute --fail-over 0
  kubectl tollgate preview node -l zone=east maintenance:NoExecute -o json
  kubectl tollgate preview node worker-1 maintenance-`,
	}
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "nodes with these `labels`, instead of names")
	connection := addPreview(cmd, e, func(arguments []string, wants *state.Wants) (previews, error) {
		return ofNodes(selector, arguments, wants)
	})
	state.CompleteNames(cmd, connection, "node", math.MaxInt)
	return cmd
}

func newDevice(e edge) *cobra.Command {
	target := &Target{}
	cmd := &cobra.Command{
		Use:   "device [DRIVER[/POOL[/DEVICE]]] KEY[=VALUE]:EFFECT...",
		Short: "Show which pods taints on devices would evict, and when",
		Long: `Show which pods taints on devices would evict, and when. These are the pods that use a device,
through any claim, and do not tolerate its taint. A name without a device, or without a pool,
selects all devices of the pool or the driver, as in a DeviceTaintRule. For the effect None,
the command shows the evictions that NoExecute would cause. A device that no ResourceSlice
publishes and that no pod uses is an error.
` + about,
		Example: `  kubectl tollgate preview device gpu.example.com/node-7/gpu-0 overheating:NoExecute
  kubectl tollgate preview device gpu.example.com/node-7 maintenance:NoExecute -o wide
  kubectl tollgate preview device --class gpus --selector 'device.attributes["gpu.example.com"].model == "A100"' recall:NoExecute`,
	}
	target.AddFlags(cmd)
	state.CompleteNames(cmd, addPreview(cmd, e, target.query), "device", 1)
	return cmd
}

// addPreview makes cmd preview a query, and write notes about missing data. It returns the connection.
func addPreview(cmd *cobra.Command, e edge, read query) *cli.Connection {
	var wants state.Wants
	var output cli.Output
	var failOver int
	connection := e.addConnection(cmd)
	output.AddFlag(cmd, "`format`", "table", "wide", "yaml", "json")
	cmd.Flags().IntVar(&failOver, "fail-over", -1, "exit with 2 if more than this `number` of pods would leave; a negative number disables this")
	wants.AddFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, arguments []string) error {
		tell, err := read(arguments, &wants)
		if err != nil {
			return err
		}
		if err := output.Validate(); err != nil {
			return err
		}
		clients, err := e.connect(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		var all []Preview
		teller, err := NewTeller(cmd.Context(), clients, e.clock.Now(), wants)
		if err == nil {
			all, err = tell(cmd.Context(), teller)
		}
		clients.Progress.End()
		if err != nil {
			return err
		}
		if err := teller.Write(cmd.OutOrStdout(), output.Format, all); err != nil {
			return err
		}
		if err := cli.WriteNotes(cmd.ErrOrStderr(), "note: ", teller.Missing()); err != nil {
			return err
		}
		if going := Going(all); failOver >= 0 && going > failOver {
			return &cli.VerdictError{Reason: fmt.Sprintf("pods that would go: %d, more than the %d of --fail-over", going, failOver)}
		}
		return nil
	}
	return connection
}
