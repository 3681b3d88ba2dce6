package devices

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	var filter Filter
	var output cli.Output
	watch := false
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "Show devices as patches make them, and where each value comes from",
		Long: `Show devices as ResourceSlicePatches and DeviceTaintRules make them, with the claims and
pods that have them. It reads the cluster as you, and needs no Tollgate in it.

A table has at most 100 columns: long names lose their beginnings. -o wide says all in
full, with attributes and capacity, and which patch or rule each comes from. -o yaml and
-o json write the ResourceSlices as they have to be seen, and under "devices" the source
of each value: what the driver published, and which patches were overruled.

With -w the table is followed by a row for each device that changes, at most once a second;
a device that is gone, or does not satisfy the filter any more, has <gone> for its node. It
ends when it is interrupted, and needs the rights to list and watch resourceslices,
deviceclasses, devicetaintrules, resourceclaims and resourceslicepatches.`,
		Example: `  kubectl tollgate devices
  kubectl tollgate devices --pool node-7 -o wide
  kubectl tollgate devices --patched -o yaml
  kubectl tollgate devices --driver gpu.example.com --tainted -w
  kubectl tollgate devices --class gpu.example.com --tainted -o name`,
		Args: cobra.NoArgs,
	}
	connection := cli.ConnectToAll(cmd)
	flags := cmd.Flags()
	output.AddFlag(cmd, "`format`", "table", "wide", "yaml", "json", "name")
	flags.BoolVarP(&watch, "watch", "w", false, "go on, and write what changes; with -o table, wide or name")
	flags.StringVar(&filter.Driver, "driver", "", "only devices of this `driver`")
	flags.StringVar(&filter.Pool, "pool", "", "only devices in pools of this `name`")
	flags.StringVar(&filter.Device, "device", "", "only devices of this `name`")
	flags.StringVar(&filter.Class, "class", "", "only devices that this `DeviceClass` selects, as they are shown")
	flags.BoolVar(&filter.Tainted, "tainted", false, "only devices with taints")
	flags.BoolVar(&filter.Patched, "patched", false, "only devices that a ResourceSlicePatch is meant for, or failed on")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := output.Validate(); err != nil {
			return err
		}
		if watch && (output.Format == "yaml" || output.Format == "json") {
			return fmt.Errorf("--output is %q, and --watch goes with table, wide and name", output.Format)
		}
		clients, err := connection.Clients(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		if watch {
			clients.Progress.End()
			return follow(cmd.Context(), clients, clock.RealClock{}, filter, output.Format, cmd.OutOrStdout())
		}
		return show(cmd.Context(), clients, filter, output.Format, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// show reads the cluster, and writes devices to out and notes to notes.
func show(ctx context.Context, clients *cli.Clients, filter Filter, output string, out, notes io.Writer) error {
	inventory, err := read(ctx, clients, filter, output != "name")
	if err == nil {
		inventory.Looked = func(devices int) { clients.Progress.Tell(devices, "devices looked at") }
		switch to := clients.Progress.Before(out); output {
		case "yaml":
			err = inventory.WriteYAML(ctx, to)
		case "json":
			err = inventory.WriteJSON(ctx, to)
		case "name":
			err = inventory.WriteNames(ctx, to)
		default:
			err = inventory.WriteTable(ctx, to, output == "wide")
		}
	}
	clients.Progress.End()
	if err != nil {
		return err
	}
	return cli.WriteNotes(notes, "", inventory.Notes())
}

// read returns the devices that match a filter, with claims on request, and with classes if they
// are needed.
func read(ctx context.Context, clients *cli.Clients, filter Filter, claims bool) (*Inventory, error) {
	sources, err := sources(ctx, clients, &filter)
	if err != nil {
		return nil, err
	}
	inventory := NewTable(filter)
	for i := range sources {
		s := &sources[i]
		if s.Resource == state.ClassResource && !inventory.needsClasses || s.Resource == state.ClaimResource && !claims {
			continue
		}
		if err := s.Each(ctx, clients, inventory.Add); err != nil {
			return nil, err
		}
	}
	return inventory, nil
}
