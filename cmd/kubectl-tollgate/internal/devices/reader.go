package devices

import (
	"context"
	"errors"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// The resources that are read besides informer.RuleResource.
var (
	claimResource = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
	sliceResource = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceslices"}
	classResource = schema.GroupResource{Group: resourcev1.GroupName, Resource: "deviceclasses"}
	patchResource = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "resourceslicepatches"}
)

// reader reads the objects about devices in chunks.
type reader struct{ *cli.Clients }

// read returns the devices that match a filter, with claims on request. Patches and rules are
// read before slices, so that each slice is evaluated once.
func (r *reader) read(ctx context.Context, filter Filter, claims bool) (*Inventory, error) {
	inventory := NewTable(filter)
	if _, err := r.Version(ctx, sliceResource, "v1"); err != nil {
		return nil, fmt.Errorf("%w (devices need Kubernetes 1.34 or later)", err)
	}
	classes, err := r.patches(ctx, inventory)
	if err != nil {
		return nil, err
	}
	if classes || filter.Class != "" {
		if err := r.classes(ctx, inventory); err != nil {
			return nil, err
		}
	}
	if err := r.rules(ctx, inventory); err != nil {
		return nil, err
	}
	if err := r.slices(ctx, inventory, filter); err != nil {
		return nil, err
	}
	if !claims {
		return inventory, nil
	}
	return inventory, r.claims(ctx, inventory)
}

// patches reads ResourceSlicePatches, if served, and reports whether any of them has a class.
func (r *reader) patches(ctx context.Context, inventory *Inventory) (classes bool, err error) {
	version, err := r.Version(ctx, patchResource, v1alpha1.GroupVersion.Version)
	if errors.Is(err, cli.ErrNotServed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = cli.Each(ctx, r.Clients, patchResource, r.List(patchResource, version), metav1.ListOptions{}, cli.As("ResourceSlicePatch", func(patch *v1alpha1.ResourceSlicePatch) error {
		filter := patch.Spec.Devices.Filter
		classes = classes || filter != nil && filter.DeviceClassName != nil
		inventory.AddPatch(patch)
		return nil
	}))
	return classes, err
}

// rules reads DeviceTaintRules in the served version.
func (r *reader) rules(ctx context.Context, inventory *Inventory) error {
	version, err := r.Version(ctx, informer.RuleResource, ruleVersions()...)
	if errors.Is(err, cli.ErrNotServed) {
		return nil
	}
	if err != nil {
		return err
	}
	return cli.Each(ctx, r.Clients, informer.RuleResource, r.List(informer.RuleResource, version), metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		return addRule(inventory, object)
	})
}

// ruleVersions are the supported versions of DeviceTaintRules, newest first.
func ruleVersions() []string { return []string{"v1", "v1beta2", "v1alpha3"} }

// addRule adds a DeviceTaintRule of any version.
func addRule(inventory *Inventory, object *unstructured.Unstructured) error {
	known, err := informer.RuleOf(object)
	if err != nil {
		return err
	}
	rule := &resourcev1.DeviceTaintRule{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, rule); err != nil {
		return fmt.Errorf("read DeviceTaintRule %s: %w", object.GetName(), err)
	}
	inventory.AddRule(rule, known.Unsupported)
	return nil
}

func (r *reader) classes(ctx context.Context, inventory *Inventory) error {
	client := r.Kubernetes.ResourceV1().DeviceClasses()
	return cli.Each(ctx, r.Clients, classResource, cli.Pages(client.List), metav1.ListOptions{}, func(class *resourcev1.DeviceClass) error {
		inventory.AddClass(class)
		return nil
	})
}

func (r *reader) slices(ctx context.Context, inventory *Inventory, filter Filter) error {
	options := metav1.ListOptions{}
	if filter.Driver != "" {
		options.FieldSelector = fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, filter.Driver).String()
	}
	client := r.Kubernetes.ResourceV1().ResourceSlices()
	return cli.Each(ctx, r.Clients, sliceResource, cli.Pages(client.List), options, func(slice *resourcev1.ResourceSlice) error {
		slice.ManagedFields = nil // as kubectl shows objects, and often half of them
		inventory.AddSlice(slice)
		return nil
	})
}

func (r *reader) claims(ctx context.Context, inventory *Inventory) error {
	client := r.Kubernetes.ResourceV1().ResourceClaims(metav1.NamespaceAll)
	return cli.Each(ctx, r.Clients, claimResource, cli.Pages(client.List), metav1.ListOptions{}, func(claim *resourcev1.ResourceClaim) error {
		inventory.AddClaim(claim)
		return nil
	})
}
