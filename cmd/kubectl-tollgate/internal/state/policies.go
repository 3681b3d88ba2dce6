package state

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

func ours(name string) schema.GroupResource {
	return schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: name}
}

// policies are the objects that policies in force are made of.
type policies struct {
	tolerations []v1alpha1.TolerationPolicy
	placement   []v1alpha1.PlacementPolicy
	gates       []v1alpha1.GatePolicy
}

// ours returns the lists of Tollgate's own kinds.
func (r *reading) ours() []list {
	const unknown = " are as if there were none"
	lists := []list{
		{resource: ours("evictionpolicies"), without: "EvictionPolicies" + unknown, read: func(ctx context.Context) error {
			return ofKind(ctx, r, "evictionpolicies", "EvictionPolicy", &r.cluster.EvictionPolicies)
		}},
	}
	if !r.wants.NoDevices {
		lists = append(lists, list{resource: ours("resourceslicepatches"), without: "ResourceSlicePatches" + unknown, read: func(ctx context.Context) error {
			return ofKind(ctx, r, "resourceslicepatches", "ResourceSlicePatch", &r.cluster.Patches)
		}})
	}
	taintPolicies := list{resource: ours("taintpolicies"), without: "TaintPolicies" + unknown, read: func(ctx context.Context) error {
		return ofKind(ctx, r, "taintpolicies", "TaintPolicy", &r.cluster.TaintPolicies)
	}}
	if r.wants.Limits {
		lists = append(lists, taintPolicies, list{resource: ours("evictionapprovals"), without: "EvictionApprovals" + unknown, read: func(ctx context.Context) error {
			return ofKind(ctx, r, "evictionapprovals", "EvictionApproval", &r.cluster.Approvals)
		}})
	}
	if !r.wants.Policies {
		return lists
	}
	if !r.wants.Limits {
		lists = append(lists, taintPolicies)
	}
	return append(lists,
		list{resource: ours("tolerationpolicies"), without: "TolerationPolicies" + unknown, read: func(ctx context.Context) error {
			return ofKind(ctx, r, "tolerationpolicies", "TolerationPolicy", &r.policies.tolerations)
		}},
		list{resource: ours("placementpolicies"), without: "PlacementPolicies" + unknown, read: func(ctx context.Context) error {
			return ofKind(ctx, r, "placementpolicies", "PlacementPolicy", &r.policies.placement)
		}},
		list{resource: ours("gatepolicies"), without: "GatePolicies" + unknown, read: func(ctx context.Context) error {
			return ofKind(ctx, r, "gatepolicies", "GatePolicy", &r.policies.gates)
		}},
	)
}

// ofKind appends to objects all that there are of one of Tollgate's kinds.
func ofKind[T any](ctx context.Context, r *reading, resource, kind string, objects *[]T) error {
	name := ours(resource)
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
