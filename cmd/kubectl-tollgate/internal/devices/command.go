// Package devices is the command that shows devices as a scheduler that obeys
// ResourceSlicePatches sees them, with their users and the source of each value and taint.
//
// An Inventory takes the objects of a cluster, in any order, and returns devices, a pool at a
// time, so that memory use is bounded by the objects. Only the newest generation of each pool
// counts (DE-16); older slices are dropped early. An Inventory is not safe for concurrent use.
package devices

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
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

// show reads the cluster, and writes devices to out and notes to notes. It reads claims and classes only
// if they are needed.
func show(ctx context.Context, clients *cli.Clients, filter Filter, output string, out, notes io.Writer) error {
	defer clients.Progress.End()
	sources, err := sources(ctx, clients, filter.Driver)
	if err != nil {
		return err
	}
	inventory := NewTable(filter)
	for _, s := range sources {
		if s.Resource == state.ClassResource && !inventory.needsClasses || s.Resource == state.ClaimResource && output == "name" {
			continue
		}
		if err := s.Each(ctx, clients, "", inventory.Add); err != nil {
			return err
		}
	}
	inventory.Looked = func(devices int) { clients.Progress.Tell(devices, "devices looked at") }
	switch to := clients.Progress.Before(out); {
	case output == "yaml":
		err = inventory.WriteYAML(ctx, to)
	case output == "json":
		err = inventory.WriteJSON(ctx, to)
	case cli.IsDocument(output):
		var document bytes.Buffer
		if err = inventory.WriteJSON(ctx, &document); err == nil {
			err = cli.Print(to, output, json.RawMessage(document.Bytes()))
		}
	case output == "name":
		err = inventory.WriteNames(ctx, to)
	default:
		err = inventory.WriteTable(ctx, to, output == "wide")
	}
	if err != nil {
		return err
	}
	return cli.WriteNotes(clients.Progress.Before(notes), "", inventory.Notes())
}

// sources returns the served resources, of which slices are those of a driver if it is not empty: patches
// and rules first, so that each slice is merged once.
func sources(ctx context.Context, clients *cli.Clients, driver string) ([]state.Source, error) {
	if _, err := state.Version(ctx, clients, state.SliceResource); err != nil {
		return nil, fmt.Errorf("%w (devices need Kubernetes 1.34 or later)", err)
	}
	all, err := state.CustomSources(ctx, clients, state.PatchResource, informer.RuleResource)
	if err != nil {
		return nil, err
	}
	claims := state.NewSource(clients, state.ClaimResource, clients.Kubernetes.ResourceV1().ResourceClaims(""), &resourcev1.ResourceClaim{})
	return append(append(all, Published(clients, driver)...), claims), nil
}

// Published returns the sources of DeviceClasses and of ResourceSlices, those of a driver if it is not
// empty.
func Published(clients *cli.Clients, driver string) []state.Source {
	client := clients.Kubernetes.ResourceV1()
	ofSlices := state.NewSource(clients, state.SliceResource, client.ResourceSlices(), &resourcev1.ResourceSlice{})
	if driver != "" {
		ofSlices.FieldSelector = fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, driver).String()
	}
	return []state.Source{state.NewSource(clients, state.ClassResource, client.DeviceClasses(), &resourcev1.DeviceClass{}), ofSlices}
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
		if err == nil {
			v.AddRule(rule, kept.Unsupported)
		}
		return err
	}
	return nil
}

// batchDelay is how long changes are collected: a driver that republishes a pool writes many
// slices.
const batchDelay = time.Second

// follow writes devices, and then changed ones, until ctx is done. The watches fill stores, which
// are evaluated as a whole after changes.
func follow(ctx context.Context, clients *cli.Clients, clk clock.WithTicker, filter Filter, output string, out io.Writer) error {
	sources, err := sources(ctx, clients, filter.Driver)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	changed := make(chan struct{}, 1)
	signal := func(any) { state.Signal(changed) }
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: signal, UpdateFunc: func(_, after any) { signal(after) }, DeleteFunc: signal}
	var stores []toolscache.Store
	var synced []toolscache.InformerSynced
	for _, source := range sources {
		store, controller := source.Watch(handler, func(err error, verb string) {
			if refused := state.Refusal(err, verb, source.Resource); refused != nil {
				group.Go(func() error { return refused })
			}
		})
		stores, synced = append(stores, store), append(synced, controller.HasSynced)
		group.Go(func() error {
			controller.RunWithContext(ctx)
			return nil
		})
	}
	wide := output == "wide"
	write := cli.NewLines(out, wide, head(wide)).Write
	if output == "name" {
		write = func(rows [][]string) error { return writeNames(out, rows) }
	}
	group.Go(func() error {
		toolscache.WaitForCacheSync(ctx.Done(), synced...)
		var shown map[string][]string
		for ctx.Err() == nil {
			inventory, err := fill(filter, stores)
			if err != nil {
				return err
			}
			if rows := inventory.rows(ctx, wide); ctx.Err() == nil {
				if rows, shown = changedRows(rows, shown); len(rows) > 0 {
					if err := write(rows); err != nil {
						return err
					}
				}
			}
			select {
			case <-ctx.Done():
			case <-clk.After(batchDelay):
			}
			select {
			case <-ctx.Done():
			case <-changed:
			}
		}
		return nil
	})
	return group.Wait()
}

// fill returns an inventory of the objects in stores.
func fill(filter Filter, stores []toolscache.Store) (*Inventory, error) {
	inventory := NewTable(filter)
	for _, store := range stores {
		for _, object := range store.List() {
			if err := inventory.Add(object.(runtime.Object)); err != nil { // A source has no other objects.
				return nil, err
			}
		}
	}
	return inventory, nil
}

// changedRows returns the rows that differ from those shown before, which are by their first cell, and
// rows of removed devices. It also returns all rows by their first cell.
func changedRows(rows [][]string, before map[string][]string) (changed [][]string, now map[string][]string) {
	now = map[string][]string{}
	for _, row := range rows {
		now[row[0]] = row
		if !slices.Equal(before[row[0]], row) {
			changed = append(changed, row)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now[name] == nil {
			nothing := slices.Repeat([]string{cli.None}, len(before[name])-2)
			changed = append(changed, append([]string{name, "<gone>"}, nothing...))
		}
	}
	return changed, now
}

// writeNames writes the first cell of each row.
func writeNames(out io.Writer, rows [][]string) error {
	var names strings.Builder
	for _, row := range rows {
		names.WriteString(row[0] + "\n")
	}
	_, err := io.WriteString(out, names.String())
	return err
}
