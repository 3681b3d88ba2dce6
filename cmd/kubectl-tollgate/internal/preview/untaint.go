package preview

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

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
func NewUntaintCommand() *cobra.Command { return newUntaint(realEdge()) }

func newUntaint(e edge) *cobra.Command {
	parent := &cobra.Command{
		Use:   "untaint",
		Short: "Remove taints that taint device made",
		Args:  cobra.NoArgs,
	}
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
	u.addFlags(cmd)
	cmd.Flags().BoolP("yes", "y", false, "no effect: the command never asks")
	cmd.RunE = func(cmd *cobra.Command, arguments []string) error {
		if err := u.complete(arguments); err != nil {
			return err
		}
		if err := u.Validate(); err != nil {
			return err
		}
		clients, err := u.connect(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer clients.Progress.End()
		return u.run(cmd.Context(), clients, cmd.OutOrStdout())
	}
	parent.AddCommand(cmd)
	return parent
}

// complete reads the name of the devices, then the taints. A single argument is a taint if flags
// select the devices.
func (u *untaintRun) complete(arguments []string) error {
	named := !u.target.Empty()
	rest, err := u.target.Take(arguments, func(argument string) bool {
		return IsTaint(argument) || named && len(arguments) == 1
	})
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return errors.New("no taint is given, want KEY[:EFFECT]")
	}
	u.taints, err = ParseRemovals(rest, OfDevices)
	return err
}

// run removes the taints that taint device made for the devices. If one cannot be removed, it
// removes none, so that a retry is possible.
func (u *untaintRun) run(ctx context.Context, clients *cli.Clients, out io.Writer) error {
	all, err := bearers(ctx, clients)
	if err != nil {
		return err
	}
	var gone []*bearer
	var problems []error
	for _, taint := range u.taints {
		found := false
		for i := range all {
			if b := &all[i]; taint.matches(b.key, b.effect) && b.removable() && b.selects && b.filter != nil &&
				equality.Semantic.DeepEqual(b.filter, u.target.Filter()) {
				found = true
				if !slices.Contains(gone, b) { // Two arguments may match it, with and without the effect.
					gone = append(gone, b)
				}
			}
		}
		if !found {
			problems = append(problems, u.notRemovable(ctx, clients, all, taint))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	return u.remove(ctx, clients, gone, out)
}

// remove deletes objects and prints the result. It stops at the first error.
func (u *untaintRun) remove(ctx context.Context, clients *cli.Clients, gone []*bearer, out io.Writer) error {
	var removed []*unstructured.Unstructured
	var failed error
	for _, b := range gone {
		if u.DryRun != cli.DryRunClient {
			options := metav1.DeleteOptions{DryRun: u.RequestDryRun(), Preconditions: metav1.NewUIDPreconditions(string(b.object.GetUID()))}
			if err := clients.Dynamic.Resource(b.resource).Delete(ctx, b.object.GetName(), options); err != nil {
				failed = cli.Failed(err, "delete "+b.String(), "delete", b.resource.GroupResource())
				break
			}
		}
		removed = append(removed, b.object)
	}
	return errors.Join(failed, u.print(out, removed, func(int) string { return "deleted" }))
}

// bearer is an object with a device taint, and the taint.
type bearer struct {
	carrier

	// filter is nil for all devices; selects is false for none.
	filter      *v1alpha1.DevicePatchFilter
	selects     bool
	key, effect string
	// ofPatch is true for a rule that Tollgate writes for a ResourceSlicePatch.
	ofPatch bool
	// sole is true if the object has no other taint.
	sole bool
}

// removable reports whether taint device made the object for the taint alone.
func (b *bearer) removable() bool { return b.sole && isOurs(b.object) }

// bearers returns all objects with device taints, except slices.
func bearers(ctx context.Context, clients *cli.Clients) ([]bearer, error) {
	rules, err := bearersOf(ctx, clients, informer.RuleResource, ofRule, state.RuleVersions()...)
	if err != nil {
		return nil, err
	}
	patches, err := bearersOf(ctx, clients, state.PatchResource, ofPatch, v1alpha1.GroupVersion.Version)
	return append(rules, patches...), err
}

// bearersOf returns the bearers of one kind; none where it is not served.
func bearersOf(
	ctx context.Context, clients *cli.Clients, resource schema.GroupResource, read func(*unstructured.Unstructured) ([]bearer, error), versions ...string,
) ([]bearer, error) {
	var all []bearer
	_, err := clients.EachServed(ctx, resource, func(object *unstructured.Unstructured) error {
		found, err := read(object)
		for _, b := range found {
			b.carrier = carrier{resource: resource.WithVersion(object.GroupVersionKind().Version), object: object}
			all = append(all, b)
		}
		return err
	}, versions...)
	if errors.Is(err, cli.ErrNotServed) {
		return nil, nil
	}
	return all, err
}

func ofRule(object *unstructured.Unstructured) ([]bearer, error) {
	rule, kept, err := informer.ReadRule(object)
	if err != nil {
		return nil, err
	}
	b := bearer{key: rule.Spec.Taint.Key, effect: string(rule.Spec.Taint.Effect), ofPatch: kept.Patch.Name != "", sole: true}
	if selector := rule.Spec.DeviceSelector; selector != nil {
		b.filter = &v1alpha1.DevicePatchFilter{Driver: selector.Driver, Pool: selector.Pool, Device: selector.Device}
		b.selects = len(kept.Unsupported) == 0
	}
	return []bearer{b}, nil
}

func ofPatch(object *unstructured.Unstructured) ([]bearer, error) {
	patch, err := cli.As[v1alpha1.ResourceSlicePatch](object)
	if err != nil {
		return nil, err
	}
	var all []bearer
	devices := &patch.Spec.Devices
	for _, taint := range devices.Taints {
		all = append(all, bearer{
			filter: devices.Filter, selects: true, key: taint.Key, effect: string(taint.Effect), sole: len(devices.Taints) == 1,
		})
	}
	return all, nil
}

// overlaps reports whether devices may be of the target, by their names. A nil filter has all.
func (t *Target) overlaps(filter *v1alpha1.DevicePatchFilter) bool {
	meets := func(name string, selected *string) bool { return name == "" || selected == nil || *selected == name }
	return filter == nil || meets(t.Driver, filter.Driver) && meets(t.Pool, filter.Pool) && meets(t.Device, filter.Device)
}

// notRemovable returns the error for a taint that is not removed: it does not exist, or has
// another author.
func (u *untaintRun) notRemovable(ctx context.Context, clients *cli.Clients, all []bearer, taint Taint) error {
	found := fmt.Errorf("taint %q of %s: taint device made none for these devices", taint, &u.target)
	for i := range all {
		b := &all[i]
		// The rules of a patch are deleted with it.
		if b.ofPatch || !taint.matches(b.key, b.effect) || !b.selects || !u.target.overlaps(b.filter) {
			continue
		}
		devices := "all devices"
		if b.filter != nil {
			target := TargetOf(b.filter)
			devices = target.String()
		}
		author := cmp.Or(b.object.GetAnnotations()[v1alpha1.AnnotationAuthor], manager(b.object.GetManagedFields()), unknown)
		remedy := ": kubectl delete " + b.String()
		if b.removable() {
			remedy = ", by taint device: untaint the same devices"
		}
		found = fmt.Errorf("%w; %s gives it to %s; it was made by %s%s", found, b, devices, author, remedy)
	}
	published, err := u.published(ctx, clients, taint)
	switch {
	case apierrors.IsForbidden(err): // The slices are optional.
		return fmt.Errorf("%w (what drivers publish is not known: you may not list resourceslices)", found)
	case err != nil:
		return err
	}
	for _, name := range published {
		found = fmt.Errorf("%w; a driver publishes it in ResourceSlice %s, and has to take it back", found, name)
	}
	return found
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

// published returns the slices in which a device of the target has the taint, as drivers publish
// them.
func (u *untaintRun) published(ctx context.Context, clients *cli.Clients, taint Taint) ([]string, error) {
	if _, err := clients.Version(ctx, state.SliceResource, "v1"); err != nil {
		if errors.Is(err, cli.ErrNotServed) {
			err = nil
		}
		return nil, err
	}
	var names []string
	client := clients.Kubernetes.ResourceV1().ResourceSlices()
	err := cli.Each(ctx, clients, state.SliceResource, "", client.List, func(slice *resourcev1.ResourceSlice) error {
		if slices.ContainsFunc(slice.Spec.Devices, func(device resourcev1.Device) bool {
			return u.target.overlaps(&v1alpha1.DevicePatchFilter{Driver: &slice.Spec.Driver, Pool: &slice.Spec.Pool.Name, Device: &device.Name}) &&
				slices.ContainsFunc(device.Taints, func(t resourcev1.DeviceTaint) bool { return taint.matches(t.Key, string(t.Effect)) })
		}) {
			names = append(names, slice.Name)
		}
		return nil
	})
	return names, err
}
