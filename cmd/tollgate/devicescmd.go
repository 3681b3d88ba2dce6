package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/devicetable"
)

// devicesOutputs are what -o takes.
var devicesOutputs = []string{"table", "wide", "yaml", "json", "name"}

func newDevicesCommand() *cobra.Command {
	var filter devicetable.Filter
	output := devicesOutputs[0]
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "Show devices as patches make them, and where each value comes from",
		Long: `Show devices as ResourceSlicePatches and DeviceTaintRules make them, with the claims and
pods that have them. It reads the cluster as you, and needs no Tollgate in it.

A table has at most 100 columns: long names lose their beginnings. -o wide says all in
full, with attributes and capacity, and which patch or rule each comes from. -o yaml and
-o json write the ResourceSlices as they have to be seen, and under "devices" the source
of each value: what the driver published, and which patches were overruled.`,
		Example: `  tollgate devices
  tollgate devices --pool node-7 -o wide
  tollgate devices --patched -o yaml
  tollgate devices --class gpu.example.com --tainted -o name`,
		Args: cobra.NoArgs,
	}
	connection := connectionFlags(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&output, "output", "o", output, "`format`: "+strings.Join(devicesOutputs, ", "))
	flags.StringVar(&filter.Driver, "driver", "", "only devices of this `driver`")
	flags.StringVar(&filter.Pool, "pool", "", "only devices in pools of this `name`")
	flags.StringVar(&filter.Device, "device", "", "only devices of this `name`")
	flags.StringVar(&filter.Class, "class", "", "only devices that this `DeviceClass` selects, as they are shown")
	flags.BoolVar(&filter.Tainted, "tainted", false, "only devices with taints")
	flags.BoolVar(&filter.Patched, "patched", false, "only devices that a ResourceSlicePatch is meant for, or failed on")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains(devicesOutputs, output) {
			return fmt.Errorf("--output is %q, want one of %s", output, strings.Join(devicesOutputs, ", "))
		}
		clients, err := clientsOf(connection)
		if err != nil {
			return err
		}
		clients.progress = newProgress(cmd.ErrOrStderr(), clock.RealClock{})
		return showDevices(cmd.Context(), clients, filter, output, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// connectionFlags adds the flags by which kubectl finds a cluster, and returns what they
// and the kubeconfig of the user say.
func connectionFlags(cmd *cobra.Command) clientcmd.ClientConfig {
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}
	cmd.Flags().StringVar(&rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "kubeconfig `file`; else $KUBECONFIG or ~/.kube/config")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"        // as in kubectl
	names.ContextOverrideFlags.Namespace = clientcmd.FlagInfo{} // Nothing that is asked for is in one.
	clientcmd.BindOverrideFlags(overrides, cmd.Flags(), names)
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// clientsOf returns clients of the user.
func clientsOf(connection clientcmd.ClientConfig) (*deviceReader, error) {
	config, err := connection.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w (give --kubeconfig and --context, or set KUBECONFIG)", err)
	}
	// One request after the other needs no limit of its own.
	config.QPS = -1
	custom, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for patches and rules: %w", err)
	}
	typed := rest.CopyConfig(config)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	typed.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	clientset, err := kubernetes.NewForConfig(typed)
	if err != nil {
		return nil, fmt.Errorf("make a client for Kubernetes: %w", err)
	}
	return &deviceReader{kubernetes: clientset, custom: custom}, nil
}

// showDevices reads the cluster and writes what there is to out, and what else is to be
// said to notes.
func showDevices(ctx context.Context, r *deviceReader, filter devicetable.Filter, output string, out, notes io.Writer) error {
	inventory, err := r.read(ctx, filter, output != "name")
	if err == nil {
		inventory.Looked = func(devices int) { r.progress.tell(devices, "devices looked at") }
		err = write(ctx, inventory, output, r.progress.before(out))
	}
	r.progress.end()
	if err != nil {
		return err
	}
	for _, note := range inventory.Notes() {
		if _, err := fmt.Fprintln(notes, note); err != nil {
			return fmt.Errorf("write notes: %w", err)
		}
	}
	return nil
}

func write(ctx context.Context, inventory *devicetable.Inventory, output string, out io.Writer) error {
	switch output {
	case "wide":
		return inventory.WriteTable(ctx, out, true)
	case "yaml":
		return inventory.WriteYAML(ctx, out)
	case "json":
		return inventory.WriteJSON(ctx, out)
	case "name":
		return inventory.WriteNames(ctx, out)
	default:
		return inventory.WriteTable(ctx, out, false)
	}
}

// terminal reports whether somebody looks at what is written.
func terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
