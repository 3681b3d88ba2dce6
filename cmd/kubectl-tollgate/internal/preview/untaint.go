package preview

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// untaintRun is one run of untaint device.
type untaintRun struct{ writing }

// NewUntaintCommand returns the command that removes taints.
func NewUntaintCommand() *cobra.Command { return newUntaint(realEdge) }

func newUntaint(e edge) *cobra.Command {
	parent := &cobra.Command{Use: "untaint", Short: "Remove taints that taint device made"}
	u := &untaintRun{writing{edge: e}}
	cmd := &cobra.Command{
		Use:   "device [DRIVER[/POOL[/DEVICE]]] KEY[:EFFECT]...",
		Short: "Remove taints that taint device set from devices",
		Long: `Remove taints that taint device set, for exactly the devices of that command. Without an effect,
the command removes the taints of all effects with the key. Pending evictions because of these
taints end. The command does not ask for confirmation, because it evicts no pods. It accepts
--yes without effect, so that scripts can use the same flags for taint device and untaint device.

A taint of another writer stays. The error names the writer, and how to remove the taint. A
driver removes its own taints. The exit code is 1 if there was no such taint, or if a taint of
another writer stays. You need the rights to list and delete devicetaintrules and, if Tollgate
runs, to list resourceslicepatches.`,
		Example: `  kubectl tollgate untaint device gpu.example.com/node-7/gpu-0 overheating
  kubectl tollgate untaint device gpu.example.com/node-7 maintenance:NoSchedule
  kubectl tollgate untaint device --class gpus recall`,
	}
	cmd.Flags().BoolP("yes", "y", false, "no effect: the command never asks")
	return u.addTo(parent, cmd, true, u.plan)
}

// plan returns the objects that taint device made for the devices and the taints. If one cannot be
// removed, it returns none, so that a retry is possible.
func (u *untaintRun) plan(cmd *cobra.Command, clients *cli.Clients) ([]*carrier, error) {
	all, err := bearers(cmd.Context(), clients)
	if err != nil {
		return nil, err
	}
	var gone []*carrier
	var problems []error
	for _, taint := range u.taints {
		problem, found := fmt.Sprintf("taint %q of %s: taint device made none for these devices", taint, &u.target), false
		for _, b := range all {
			switch {
			case !b.taint.goes(taint):
			case b.removable && equality.Semantic.DeepEqual(b.filter, u.target.Filter()):
				found = true
				if !slices.Contains(gone, &b.carrier) { // Two arguments may match it, with and without the effect.
					gone = append(gone, &b.carrier)
				}
			case u.target.overlaps(b.filter):
				problem += "; " + b.origin()
			}
		}
		if !found {
			problems = append(problems, u.notRemovable(cmd.Context(), clients, taint, problem))
		}
	}
	return gone, errors.Join(problems...)
}

// bearer is an object with a device taint, and the taint.
type bearer struct {
	carrier

	taint Taint
	// filter is nil for all devices.
	filter *v1alpha1.DevicePatchFilter
	// removable is true if taint device made the object for the taint alone.
	removable bool
}

// bearers returns all objects with device taints, except slices, rules that select no devices, and
// rules that Tollgate writes for a ResourceSlicePatch, which are deleted with it.
func bearers(ctx context.Context, clients *cli.Clients) ([]*bearer, error) {
	var all []*bearer
	add := func(
		resource schema.GroupResource, object *unstructured.Unstructured, filter *v1alpha1.DevicePatchFilter, taints ...v1alpha1.PatchedTaint,
	) {
		for _, taint := range taints {
			all = append(all, &bearer{
				carrier: carrier{resource: resource.WithVersion(object.GroupVersionKind().Version), object: object, verb: "delete"},
				taint:   Taint(taint), filter: filter, removable: len(taints) == 1 && isOurs(object),
			})
		}
	}
	_, err := clients.EachServed(ctx, informer.RuleResource, func(object *unstructured.Unstructured) error {
		rule, kept, err := informer.ReadRule(object)
		if err == nil && kept.Selects && kept.Patch.Name == "" {
			names := rule.Spec.DeviceSelector
			filter := &v1alpha1.DevicePatchFilter{Driver: names.Driver, Pool: names.Pool, Device: names.Device}
			add(informer.RuleResource, object, filter, v1alpha1.PatchedTaint(rule.Spec.Taint))
		}
		return err
	}, state.RuleVersions()...)
	if err != nil && !errors.Is(err, cli.ErrNotServed) {
		return nil, err
	}
	_, err = clients.EachServed(ctx, state.PatchResource, func(object *unstructured.Unstructured) error {
		patch, err := cli.As[v1alpha1.ResourceSlicePatch](object)
		if err == nil {
			add(state.PatchResource, object, patch.Spec.Devices.Filter, patch.Spec.Devices.Taints...)
		}
		return err
	}, v1alpha1.GroupVersion.Version)
	if errors.Is(err, cli.ErrNotServed) {
		err = nil
	}
	return all, err
}

// origin says which devices the object taints, who made it, and how to remove the taint.
func (b *bearer) origin() string {
	devices, remedy := "all devices", ": kubectl delete "+b.String()
	if b.filter != nil {
		devices = devicesOf(b.filter)
	}
	if b.removable {
		remedy = ", by taint device: untaint the same devices"
	}
	author := cmp.Or(b.object.GetAnnotations()[v1alpha1.AnnotationAuthor], manager(b.object.GetManagedFields()), unknown)
	return fmt.Sprintf("%s gives it to %s; it was made by %s%s", b, devices, author, remedy)
}

// manager returns the first manager of the spec, empty if unknown. Entries are not ordered by
// time, and managers of the status do not count.
func manager(entries []metav1.ManagedFieldsEntry) string {
	var first *metav1.ManagedFieldsEntry
	for _, entry := range entries {
		if entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		var fields map[string]json.RawMessage
		_ = json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) // Without fields, the manager does not count.
		if _, spec := fields["f:spec"]; spec && (first == nil || entry.Time.Before(first.Time)) {
			first = &entry
		}
	}
	if first == nil {
		return ""
	}
	return first.Manager
}

// overlaps reports whether devices may be of the target, by their names. A nil filter has all.
func (t *Target) overlaps(filter *v1alpha1.DevicePatchFilter) bool {
	meets := func(name string, selected *string) bool { return name == "" || selected == nil || *selected == name }
	return filter == nil || meets(t.Driver, filter.Driver) && meets(t.Pool, filter.Pool) && meets(t.Device, filter.Device)
}

// notRemovable returns the error for a taint that is not removed, with the slices in which a driver
// publishes it for a device of the target.
func (u *untaintRun) notRemovable(ctx context.Context, clients *cli.Clients, taint Taint, problem string) error {
	var published strings.Builder
	served, err := state.Serves(ctx, clients, state.SliceResource, "v1")
	if served {
		client := clients.Kubernetes.ResourceV1().ResourceSlices()
		err = cli.Each(ctx, clients, state.SliceResource, "", client.List, func(slice *resourcev1.ResourceSlice) error {
			names := v1alpha1.DevicePatchFilter{Driver: &slice.Spec.Driver, Pool: &slice.Spec.Pool.Name}
			for _, device := range slice.Spec.Devices {
				names.Device = &device.Name
				if u.target.overlaps(&names) && slices.ContainsFunc(device.Taints, func(t resourcev1.DeviceTaint) bool { return Taint(t).goes(taint) }) {
					published.WriteString("; a driver publishes it in ResourceSlice " + slice.Name + ", and has to take it back")
					break
				}
			}
			return nil
		})
	}
	switch {
	case apierrors.IsForbidden(err): // The slices are optional.
		return errors.New(problem + " (what drivers publish is not known: you may not list resourceslices)")
	case err != nil:
		return err
	default:
		return errors.New(problem + published.String())
	}
}
