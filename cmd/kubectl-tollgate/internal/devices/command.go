package devices

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	var filter Filter
	var output cli.Output
	watch := false
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "Show devices with the changes by patches, and the source of each value",
		Long: `Show devices with the changes by ResourceSlicePatches and DeviceTaintRules, and the claims
and pods that use them. The command uses your rights, and works without Tollgate in the
cluster.

A table has at most 100 columns: it cuts off the beginnings of long names. -o wide shows all
values in full, with attributes and capacity, and the patch or rule that sets each. -o yaml
and -o json write the ResourceSlices with all changes. The field "devices" has the source of
each value: the published value, and the patches that were overruled.

-w continues after the table with a row for each changed device, at most once a second. A
device that is gone, or no longer matches the filter, has <gone> as its node. The command ends
when you interrupt it. You need the rights to list and watch resourceslices, deviceclasses,
devicetaintrules, resourceclaims and resourceslicepatches.`,
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
	flags.BoolVarP(&watch, "watch", "w", false, "watch for changes after the first output; with -o table, wide or name")
	flags.StringVar(&filter.Driver, "driver", "", "only devices of this `driver`")
	flags.StringVar(&filter.Pool, "pool", "", "only devices in pools of this `name`")
	flags.StringVar(&filter.Device, "device", "", "only devices of this `name`")
	flags.StringVar(&filter.Class, "class", "", "only devices that this `DeviceClass` selects, with the changes by patches")
	flags.BoolVar(&filter.Tainted, "tainted", false, "only devices with taints")
	flags.BoolVar(&filter.Patched, "patched", false, "only devices that a ResourceSlicePatch selects, or on which one failed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := output.Validate(); err != nil {
			return err
		}
		if watch && cli.IsDocument(output.Format) {
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
		switch to := clients.Progress.Before(out); {
		case output == "yaml":
			err = inventory.WriteYAML(ctx, to)
		case output == "json":
			err = inventory.WriteJSON(ctx, to)
		case cli.IsDocument(output):
			var document bytes.Buffer
			if err = inventory.WriteJSON(ctx, &document); err == nil {
				err = cli.WriteDocument(to, output, "", json.RawMessage(document.Bytes()))
			}
		case output == "name":
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
	for _, s := range sources {
		if s.Resource == state.ClassResource && !inventory.needsClasses || s.Resource == state.ClaimResource && !claims {
			continue
		}
		if err := s.Each(ctx, clients, "", inventory.Add); err != nil {
			return nil, err
		}
	}
	return inventory, nil
}

// sources returns the served resources: patches and rules first, so that each slice is merged
// once.
func sources(ctx context.Context, clients *cli.Clients, filter *Filter) ([]state.Source, error) {
	if _, err := clients.Version(ctx, state.SliceResource, "v1"); err != nil {
		return nil, fmt.Errorf("%w (devices need Kubernetes 1.34 or later)", err)
	}
	var all []state.Source
	for _, custom := range []struct {
		resource schema.GroupResource
		versions []string
	}{{state.PatchResource, []string{v1alpha1.GroupVersion.Version}}, {informer.RuleResource, state.RuleVersions()}} {
		version, err := clients.Version(ctx, custom.resource, custom.versions...)
		if errors.Is(err, cli.ErrNotServed) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, state.NewCustomSource(clients, custom.resource, version))
	}
	client := clients.Kubernetes.ResourceV1()
	ofSlices := state.NewSource(clients, state.SliceResource, client.ResourceSlices(), &resourcev1.ResourceSlice{})
	if filter.Driver != "" {
		ofSlices.FieldSelector = fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, filter.Driver).String()
	}
	return append(all,
		state.NewSource(clients, state.ClassResource, client.DeviceClasses(), &resourcev1.DeviceClass{}), ofSlices,
		state.NewSource(clients, state.ClaimResource, client.ResourceClaims(metav1.NamespaceAll), &resourcev1.ResourceClaim{}),
	), nil
}

// Add adds an object of a source.
func (v *Inventory) Add(object runtime.Object) error {
	switch o := object.(type) {
	case *resourcev1.DeviceClass:
		v.AddClass(o)
	case *resourcev1.ResourceSlice:
		v.AddSlice(o)
	case *resourcev1.ResourceClaim:
		v.AddClaim(o)
	case *unstructured.Unstructured:
		if o.GetKind() == "ResourceSlicePatch" {
			patch, err := cli.As[v1alpha1.ResourceSlicePatch](o)
			if err == nil {
				v.AddPatch(patch)
			}
			return err
		}
		rule, kept, err := informer.ReadRule(o)
		if err != nil {
			return err
		}
		v.AddRule(rule, kept.Unsupported)
	}
	return nil
}
