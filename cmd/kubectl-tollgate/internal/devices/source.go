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
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

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
			return cli.As(func(patch *v1alpha1.ResourceSlicePatch) error { v.AddPatch(patch); return nil })(o)
		}
		rule, kept, err := state.ReadRule(o)
		if err != nil {
			return err
		}
		v.AddRule(rule, kept.Unsupported)
	}
	return nil
}
