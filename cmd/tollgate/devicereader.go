package main

import (
	"context"
	"errors"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/devicetable"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// What a devices command reads, besides informer.RuleResource and claimResource.
var (
	sliceResource = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceslices"}
	classResource = schema.GroupResource{Group: resourcev1.GroupName, Resource: "deviceclasses"}
	patchResource = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "resourceslicepatches"}
)

// deviceReader reads what there is to know of devices, a chunk at a time.
type deviceReader struct {
	kubernetes kubernetes.Interface
	custom     dynamic.Interface
	progress   *progress
}

// read returns the devices that satisfy a filter, without their claims unless asked for.
// What decides how slices look comes before them, so that each is looked at once.
func (r *deviceReader) read(ctx context.Context, filter devicetable.Filter, claims bool) (*devicetable.Inventory, error) {
	inventory := devicetable.New(filter)
	if _, err := r.version(ctx, sliceResource, "v1"); err != nil {
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

// errNotServed is why something that has to be there cannot be read.
var errNotServed = errors.New("the API server does not serve it")

// version returns the first of some versions in which a resource is served. Asking what is
// served is everybody's right; a list of what is not served may be forbidden instead.
func (r *deviceReader) version(ctx context.Context, resource schema.GroupResource, versions ...string) (string, error) {
	asked := discovery.ToServerResourcesInterfaceWithContext(r.kubernetes.Discovery())
	for _, version := range versions {
		group := resource.WithVersion(version).GroupVersion().String()
		list, err := asked.ServerResourcesForGroupVersionWithContext(ctx, group)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("ask what is served of %s: %w", group, err)
		}
		for i := range list.APIResources {
			if list.APIResources[i].Name == resource.Resource {
				return version, nil
			}
		}
	}
	return "", fmt.Errorf("list %s in version %s: %w", resource, versions[0], errNotServed)
}

// patches reads ResourceSlicePatches, if there are such, and reports whether any of them
// names a class.
func (r *deviceReader) patches(ctx context.Context, inventory *devicetable.Inventory) (classes bool, err error) {
	version, err := r.version(ctx, patchResource, v1alpha1.GroupVersion.Version)
	if errors.Is(err, errNotServed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = each(ctx, r, patchResource, r.objects(patchResource, version), metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		patch := &v1alpha1.ResourceSlicePatch{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, patch); err != nil {
			return fmt.Errorf("read ResourceSlicePatch %s: %w", object.GetName(), err)
		}
		filter := patch.Spec.Devices.Filter
		classes = classes || filter != nil && filter.DeviceClassName != nil
		inventory.AddPatch(patch)
		return nil
	})
	return classes, err
}

// rules reads DeviceTaintRules, in whatever version there are some.
func (r *deviceReader) rules(ctx context.Context, inventory *devicetable.Inventory) error {
	version, err := r.version(ctx, informer.RuleResource, "v1", "v1beta2", "v1alpha3")
	if errors.Is(err, errNotServed) {
		return nil
	}
	if err != nil {
		return err
	}
	return each(ctx, r, informer.RuleResource, r.objects(informer.RuleResource, version), metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
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
	})
}

func (r *deviceReader) objects(resource schema.GroupResource, version string) pager.ListPageFunc {
	client := r.custom.Resource(resource.WithVersion(version))
	return func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, options)
	}
}

func (r *deviceReader) classes(ctx context.Context, inventory *devicetable.Inventory) error {
	client := r.kubernetes.ResourceV1().DeviceClasses()
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, options)
	}
	return each(ctx, r, classResource, list, metav1.ListOptions{}, func(class *resourcev1.DeviceClass) error {
		inventory.AddClass(class)
		return nil
	})
}

func (r *deviceReader) slices(ctx context.Context, inventory *devicetable.Inventory, filter devicetable.Filter) error {
	options := metav1.ListOptions{}
	if filter.Driver != "" {
		options.FieldSelector = fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, filter.Driver).String()
	}
	client := r.kubernetes.ResourceV1().ResourceSlices()
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, options)
	}
	return each(ctx, r, sliceResource, list, options, func(slice *resourcev1.ResourceSlice) error {
		slice.ManagedFields = nil // as kubectl shows objects, and often half of them
		inventory.AddSlice(slice)
		return nil
	})
}

func (r *deviceReader) claims(ctx context.Context, inventory *devicetable.Inventory) error {
	client := r.kubernetes.ResourceV1().ResourceClaims(metav1.NamespaceAll)
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, options)
	}
	return each(ctx, r, claimResource, list, metav1.ListOptions{}, func(claim *resourcev1.ResourceClaim) error {
		inventory.AddClaim(claim)
		return nil
	})
}

// each calls take for every object of a list. Of an object that is kept, none of the others
// that came with it are.
func each[T runtime.Object](ctx context.Context, r *deviceReader, resource schema.GroupResource, list pager.ListPageFunc, options metav1.ListOptions, take func(T) error) error {
	pages, count := pager.New(list), 0
	// One chunk waits while another is read: they can be large.
	pages.PageBufferSize = 1
	err := pages.EachListItemWithAlloc(ctx, options, func(object runtime.Object) error {
		typed, ok := object.(T)
		if !ok {
			return fmt.Errorf("got %T", object)
		}
		count++
		r.progress.tell(count, resource.Resource+" read")
		return take(typed)
	})
	if err != nil {
		return fmt.Errorf("list %s: %w%s", resource, err, advice(err, resource))
	}
	return nil
}

// advice says what to do about an error of a list.
func advice(err error, resource schema.GroupResource) string {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf(" (ask for a ClusterRole with the verb list on %s of API group %s)", resource.Resource, resource.Group)
	case apierrors.IsUnauthorized(err):
		return " (the credentials of the kubeconfig are not accepted: log in again)"
	case apierrors.IsResourceExpired(err):
		return " (the list took longer than the API server keeps its beginning: try again, or give --driver)"
	default:
		return ""
	}
}
