package state

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

func tollgateResource(name string) schema.GroupResource {
	return schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: name}
}

// policies are the source objects of the policies in force.
type policies struct {
	tolerations []v1alpha1.TolerationPolicy
	placement   []v1alpha1.PlacementPolicy
	gates       []v1alpha1.GatePolicy
}

// policyLists returns the lists of Tollgate's own kinds.
func (r *reader) policyLists() []list {
	const unknown = " are as if there were none"
	lists := []list{
		{resource: tollgateResource("evictionpolicies"), without: "EvictionPolicies" + unknown, read: func(ctx context.Context) error {
			return listKind(ctx, r, "evictionpolicies", "EvictionPolicy", &r.cluster.EvictionPolicies)
		}},
	}
	if !r.wants.NoDevices {
		lists = append(lists, list{resource: tollgateResource("resourceslicepatches"), without: "ResourceSlicePatches" + unknown, read: func(ctx context.Context) error {
			return listKind(ctx, r, "resourceslicepatches", "ResourceSlicePatch", &r.cluster.Patches)
		}})
	}
	taintPolicies := list{resource: tollgateResource("taintpolicies"), without: "TaintPolicies" + unknown, read: func(ctx context.Context) error {
		return listKind(ctx, r, "taintpolicies", "TaintPolicy", &r.cluster.TaintPolicies)
	}}
	if r.wants.Limits {
		lists = append(lists, taintPolicies, list{resource: tollgateResource("evictionapprovals"), without: "EvictionApprovals" + unknown, read: func(ctx context.Context) error {
			return listKind(ctx, r, "evictionapprovals", "EvictionApproval", &r.cluster.Approvals)
		}})
	}
	if !r.wants.Policies {
		return lists
	}
	if !r.wants.Limits {
		lists = append(lists, taintPolicies)
	}
	return append(lists,
		list{resource: tollgateResource("tolerationpolicies"), without: "TolerationPolicies" + unknown, read: func(ctx context.Context) error {
			return listKind(ctx, r, "tolerationpolicies", "TolerationPolicy", &r.policies.tolerations)
		}},
		list{resource: tollgateResource("placementpolicies"), without: "PlacementPolicies" + unknown, read: func(ctx context.Context) error {
			return listKind(ctx, r, "placementpolicies", "PlacementPolicy", &r.policies.placement)
		}},
		list{resource: tollgateResource("gatepolicies"), without: "GatePolicies" + unknown, read: func(ctx context.Context) error {
			return listKind(ctx, r, "gatepolicies", "GatePolicy", &r.policies.gates)
		}},
	)
}

// listKind appends all objects of one of Tollgate's kinds to objects.
func listKind[T any](ctx context.Context, r *reader, resource, kind string, objects *[]T) error {
	name := tollgateResource(resource)
	version, err := r.Version(ctx, name, v1alpha1.GroupVersion.Version)
	if err != nil {
		return err
	}
	return cli.Each(ctx, r.Clients, name, r.List(name, version), metav1.ListOptions{}, cli.As(kind, func(object *T) error {
		*objects = append(*objects, *object)
		return nil
	}))
}

// into compiles the policies.
func (p *policies) into(c *Cluster) {
	c.Policies = c.Policies.WithEvictions(c.EvictionPolicies).WithTaints(c.TaintPolicies).
		WithTolerations(p.tolerations).WithPlacement(p.placement).WithGates(p.gates)
	if c.devices == nil {
		return
	}
	for i := range c.Patches {
		c.devices.SetPatch(&c.Patches[i])
	}
}
