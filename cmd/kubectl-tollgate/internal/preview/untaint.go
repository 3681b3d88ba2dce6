package preview

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// untaintRun is one run of untaint device.
type untaintRun struct {
	edge
	writing

	taints []Taint
}

// parse reads the arguments. A single one is a taint if flags select the devices.
func (u *untaintRun) parse(arguments []string) error {
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
	if u.taints, err = ParseRemovals(rest, OfDevices); err != nil {
		return err
	}
	return u.check()
}

// bearer is an object with a device taint, and the taint.
type bearer struct {
	carrier

	// filter is nil for all devices; selects is false for none.
	filter        *v1alpha1.DevicePatchFilter
	selects       bool
	key, effect   string
	writtenOutFor string
	// sole is true if the object has no other taint.
	sole bool
}

// remove removes the taints that taint device made for the devices.
func (u *untaintRun) remove(ctx context.Context, clients *cli.Clients, out io.Writer) error {
	all, err := bearers(ctx, clients)
	if err != nil {
		return err
	}
	var gone []*bearer
	var problems []error
	for _, taint := range u.taints {
		found := false
		for i := range all {
			if b := &all[i]; b.gives(taint) && b.sole && isOurs(b.object) && u.exactly(b) {
				found = true
				if !slices.Contains(gone, b) { // Two arguments may match it, with and without the effect.
					gone = append(gone, b)
				}
			}
		}
		if !found {
			problems = append(problems, u.notOurs(ctx, clients, all, taint))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return err // No object is removed, so that a retry is possible.
	}
	return u.removeAll(ctx, clients, gone, out)
}

// removeAll removes objects and prints the result. It stops at the first error.
func (u *untaintRun) removeAll(ctx context.Context, clients *cli.Clients, gone []*bearer, out io.Writer) error {
	var removed []*bearer
	for _, b := range gone {
		uid, options := b.object.GetUID(), metav1.DeleteOptions{DryRun: u.dry()}
		options.Preconditions = &metav1.Preconditions{UID: &uid}
		if u.dryRun != dryRuns[1] {
			if err := clients.Dynamic.Resource(b.resource).Delete(ctx, b.object.GetName(), options); err != nil {
				err = cli.Failed(err, "delete "+b.String(), "delete", b.resource.GroupResource())
				return errors.Join(err, u.show(out, removed))
			}
		}
		removed = append(removed, b)
	}
	return u.show(out, removed)
}

// show prints the removed objects.
func (u *untaintRun) show(out io.Writer, removed []*bearer) error {
	if u.output == "yaml" || u.output == "json" {
		objects := make([]*unstructured.Unstructured, 0, len(removed))
		for _, b := range removed {
			objects = append(objects, b.object)
		}
		return printObjects(out, u.output, objects)
	}
	for _, b := range removed {
		text := b.String()
		if u.output == "" {
			text += " deleted" + u.suffix()
		}
		if _, err := fmt.Fprintln(out, text); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// bearers returns all objects with device taints, except slices.
func bearers(ctx context.Context, clients *cli.Clients) ([]bearer, error) {
	rules, err := taintListed(ctx, clients, informer.RuleResource, ofRule, "v1", "v1beta2", "v1alpha3")
	if err != nil {
		return nil, err
	}
	patches, err := taintListed(ctx, clients, patchResource, ofPatch, v1alpha1.GroupVersion.Version)
	return append(rules, patches...), err
}

// taintListed returns the bearers of one kind; none where it is not served.
func taintListed(ctx context.Context, clients *cli.Clients, resource schema.GroupResource, read func(*unstructured.Unstructured) ([]bearer, error), served ...string) ([]bearer, error) {
	version, err := clients.Version(ctx, resource, served...)
	if errors.Is(err, cli.ErrNotServed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []bearer
	err = cli.Each(ctx, clients, resource, clients.List(resource, version), metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		found, err := read(object)
		for i := range found {
			found[i].carrier = carrier{resource: resource.WithVersion(version), object: object}
		}
		all = append(all, found...)
		return err
	})
	return all, err
}

func ofRule(object *unstructured.Unstructured) ([]bearer, error) {
	rule := &resourcev1.DeviceTaintRule{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, rule); err != nil {
		return nil, fmt.Errorf("read DeviceTaintRule %s: %w", object.GetName(), err)
	}
	b := bearer{key: rule.Spec.Taint.Key, effect: string(rule.Spec.Taint.Effect), selects: rule.Spec.DeviceSelector != nil, sole: true}
	if selector := rule.Spec.DeviceSelector; selector != nil {
		b.filter = &v1alpha1.DevicePatchFilter{Driver: selector.Driver, Pool: selector.Pool, Device: selector.Device}
	}
	if kept, err := informer.RuleOf(object); err == nil {
		b.selects = b.selects && len(kept.Unsupported) == 0
		b.writtenOutFor = kept.Patch.Name
	}
	return []bearer{b}, nil
}

func ofPatch(object *unstructured.Unstructured) ([]bearer, error) {
	patch := &v1alpha1.ResourceSlicePatch{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, patch); err != nil {
		return nil, fmt.Errorf("read ResourceSlicePatch %s: %w", object.GetName(), err)
	}
	var all []bearer
	for i := range patch.Spec.Devices.Taints {
		taint := &patch.Spec.Devices.Taints[i]
		all = append(all, bearer{
			filter: patch.Spec.Devices.Filter, selects: true, key: taint.Key, effect: string(taint.Effect),
			sole: len(patch.Spec.Devices.Taints) == 1,
		})
	}
	return all, nil
}

// gives reports whether the bearer has the taint to remove.
func (b *bearer) gives(taint Taint) bool {
	return b.key == taint.Key && (taint.Effect == "" || taint.Effect == b.effect)
}

// exactly reports whether a bearer has exactly the devices of the target.
func (u *untaintRun) exactly(b *bearer) bool {
	return b.selects && b.filter != nil && equality.Semantic.DeepEqual(b.filter, u.target.Filter())
}

// overlaps reports whether a bearer may have devices of the target, by their names.
func (u *untaintRun) overlaps(b *bearer) bool {
	if b.filter == nil {
		return b.selects
	}
	meets := func(asked string, selected *string) bool { return asked == "" || selected == nil || *selected == asked }
	return b.selects && meets(u.target.Driver, b.filter.Driver) && meets(u.target.Pool, b.filter.Pool) && meets(u.target.Device, b.filter.Device)
}

// notOurs returns the error for a taint that is not removed: it does not exist, or has another
// author.
func (u *untaintRun) notOurs(ctx context.Context, clients *cli.Clients, all []bearer, taint Taint) error {
	found := fmt.Errorf("taint %q of %s: taint device made none for these devices", taint, &u.target)
	for i := range all {
		b := &all[i]
		// The rules of a patch are deleted with it.
		if b.writtenOutFor != "" || !b.gives(taint) || !u.overlaps(b) {
			continue
		}
		text := fmt.Sprintf("%s gives it to %s; it was made by %s", b, b.devices(), b.author())
		if isOurs(b.object) && b.sole {
			text += ", by taint device: untaint the same devices"
		} else {
			text += ": kubectl delete " + b.String()
		}
		found = fmt.Errorf("%w; %s", found, text)
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

// devices returns the names of the devices of a bearer.
func (b *bearer) devices() string {
	if b.filter == nil {
		return "all devices"
	}
	target := TargetOf(b.filter)
	return target.String()
}

// author returns the author of an object, if known.
func (b *bearer) author() string {
	return cmp.Or(b.object.GetAnnotations()[v1alpha1.AnnotationAuthor], maker(b.object.GetManagedFields()), "<unknown>")
}

// maker returns the first manager of the spec, empty if unknown. Entries are not ordered by time,
// and managers of the status do not count.
func maker(entries []metav1.ManagedFieldsEntry) string {
	var first *metav1.ManagedFieldsEntry
	for i := range entries {
		entry := &entries[i]
		if entry.Subresource == "" && hasSpec(entry.FieldsV1) && (first == nil || entry.Time.Before(first.Time)) {
			first = entry
		}
	}
	if first == nil {
		return ""
	}
	return first.Manager
}

// hasSpec reports whether a set of fields has fields of a spec.
func hasSpec(fields *metav1.FieldsV1) bool {
	if fields == nil {
		return false
	}
	var at map[string]json.RawMessage
	if json.Unmarshal(fields.GetRawBytes(), &at) != nil {
		return false
	}
	_, found := at["f:spec"]
	return found
}

// published returns the slices with the taint, as drivers publish them.
func (u *untaintRun) published(ctx context.Context, clients *cli.Clients, taint Taint) ([]string, error) {
	if _, err := clients.Version(ctx, sliceResource, "v1"); err != nil {
		if errors.Is(err, cli.ErrNotServed) {
			return nil, nil
		}
		return nil, err
	}
	var names []string
	client := clients.Kubernetes.ResourceV1().ResourceSlices()
	err := cli.Each(ctx, clients, sliceResource, cli.Pages(client.List), metav1.ListOptions{}, func(slice *resourcev1.ResourceSlice) error {
		if u.inSlice(slice, taint) {
			names = append(names, slice.Name)
		}
		return nil
	})
	return names, err
}

// inSlice reports whether a device of the target has the taint in a slice.
func (u *untaintRun) inSlice(slice *resourcev1.ResourceSlice, taint Taint) bool {
	for i := range slice.Spec.Devices {
		device := &slice.Spec.Devices[i]
		filter := &v1alpha1.DevicePatchFilter{Driver: &slice.Spec.Driver, Pool: &slice.Spec.Pool.Name, Device: &device.Name}
		for j := range device.Taints {
			b := bearer{filter: filter, selects: true, key: device.Taints[j].Key, effect: string(device.Taints[j].Effect)}
			if b.gives(taint) && u.overlaps(&b) {
				return true
			}
		}
	}
	return false
}
