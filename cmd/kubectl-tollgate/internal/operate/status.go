package operate

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
)

// statusCommand is one run of the command status.
type statusCommand struct{ command }

// NewStatusCommand returns the command status.
func NewStatusCommand() *cobra.Command {
	c := &statusCommand{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what Tollgate does and what it holds, on one screen",
		Long: `Show whether Tollgate runs and in which mode, its webhooks, its policies, the tainted nodes and
devices, and how many pods have to leave, in the states of "kubectl tollgate evictions". Below that,
the command lists what needs attention: policies that are paused or not ready, and what holds pods,
with the command that lets them go.

The exit code is 1 after an error, and otherwise 0. You need the verb list on pods and nodes. The
command shows more with the rights for "kubectl tollgate evictions", with the verb list on the
policies of the API group tollgate.dev, and with get on the webhook configurations named tollgate.`,
		Example: `  kubectl tollgate status
  kubectl tollgate status -o json`,
		Args: cobra.NoArgs,
	}
	c.build(cmd, func([]string) error { return c.Output.Validate() }, c.run)
	c.AddFlag(cmd, "`format`", "text", "yaml", "json")
	c.wants.AddFlags(cmd)
	return cmd
}

// run reads the cluster and writes its state.
func (c *statusCommand) run(ctx context.Context, clients *cli.Clients) error {
	now := c.clock.Now()
	shown, found, err := evictions.Read(ctx, clients, now, c.wants)
	if err != nil {
		return err
	}
	objects, err := ReadObjects(ctx, clients)
	if err != nil {
		return err
	}
	clients.Progress.End()
	d := StatusOf(found, objects, shown.List(now, &evictions.Filter{}), now)
	if c.Format != "text" {
		return cli.Print(c.out, c.Format, d)
	}
	return d.write(c.out, now)
}
