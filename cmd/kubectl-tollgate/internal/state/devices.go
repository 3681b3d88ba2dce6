package state

import (
	"context"
	"errors"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

var (
	claimResource    = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
	sliceResource    = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceslices"}
	classResource    = schema.GroupResource{Group: resourcev1.GroupName, Resource: "deviceclasses"}
	podGroupResource = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
)

// deviceLists returns the lists of device taints and claims.
func (r *reader) deviceLists() []list {
	lists := []list{
		{resource: claimResource, without: "it is not known which pods use which devices", read: r.claims},
		{resource: sliceResource, without: "devices that no claim has, and the taints that drivers publish, are not known", read: r.resourceSlices},
		{resource: informer.RuleResource, without: "the taints of DeviceTaintRules and ResourceSlicePatches are not known", read: r.rules},
	}
	if r.wants.Selection {
		lists = append(lists, list{resource: classResource, without: "which devices a ResourceSlicePatch with a class selects is not known", read: r.deviceClasses})
	}
	return lists
}

// claims reads ResourceClaims, and whether PodGroups are served. If claims are not served, there
// are none.
func (r *reader) claims(ctx context.Context) error {
	_, err := r.Version(ctx, podGroupResource, "v1", "v1beta1", "v1alpha3", "v1alpha2")
	if err != nil && !errors.Is(err, cli.ErrNotServed) {
		return err
	}
	r.cluster.Tracker.SetPodGroups(err == nil)
	if _, err := r.Version(ctx, claimResource, "v1"); err != nil {
		r.cluster.claimsKnown = errors.Is(err, cli.ErrNotServed)
		return err
	}
	take := func(claim *resourcev1.ResourceClaim) error { //nolint:unparam // Required by cli.Each.
		r.cluster.Tracker.SetClaim(tracker.ClaimOf(claim))
		if r.wants.Claim != nil && r.wants.Claim(claim) {
			r.cluster.Claims = append(r.cluster.Claims, claim)
		}
		return nil
	}
	r.cluster.ownClaims, err = r.each(func(namespace string) error {
		client := r.Kubernetes.ResourceV1().ResourceClaims(namespace)
		return cli.EachIn(ctx, r.Clients, claimResource, namespace, cli.Pages(client.List), metav1.ListOptions{}, take)
	})
	r.cluster.claimsKnown = err == nil
	return err
}

func (r *reader) resourceSlices(ctx context.Context) error {
	if _, err := r.Version(ctx, sliceResource, "v1"); err != nil {
		return err
	}
	client := r.Kubernetes.ResourceV1().ResourceSlices()
	err := cli.Each(ctx, r.Clients, sliceResource, cli.Pages(client.List), metav1.ListOptions{}, func(slice *resourcev1.ResourceSlice) error {
		r.cluster.Tracker.SetSlice(tracker.SliceOf(slice), r.cluster.Now)
		if r.wants.Selection {
			slice.ManagedFields = nil // often half of the size
			r.cluster.devices.SetSlice(slice)
		}
		return nil
	})
	r.slices = err == nil
	return err
}

func (r *reader) deviceClasses(ctx context.Context) error {
	if _, err := r.Version(ctx, classResource, "v1"); err != nil {
		return err
	}
	client := r.Kubernetes.ResourceV1().DeviceClasses()
	err := cli.Each(ctx, r.Clients, classResource, cli.Pages(client.List), metav1.ListOptions{}, func(class *resourcev1.DeviceClass) error {
		r.cluster.devices.SetClass(class)
		return nil
	})
	r.classes = err == nil
	return err
}

// rules reads DeviceTaintRules in the served version.
func (r *reader) rules(ctx context.Context) error {
	version, err := r.Version(ctx, informer.RuleResource, "v1", "v1beta2", "v1alpha3")
	if err != nil {
		return err
	}
	r.cluster.RuleVersion, r.cluster.Rule = version, map[string]*resourcev1.DeviceTaintRule{}
	return cli.Each(ctx, r.Clients, informer.RuleResource, r.List(informer.RuleResource, version), metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		rule, kept, err := ReadRule(object)
		if err != nil {
			return err
		}
		rule.ManagedFields = nil // as in the output of kubectl
		r.cluster.Tracker.SetRule(kept, r.cluster.Now)
		r.cluster.Rule[rule.Name] = rule
		return nil
	})
}

// ReadRule converts a DeviceTaintRule of any version, also as the tracker has it.
func ReadRule(object *unstructured.Unstructured) (*resourcev1.DeviceTaintRule, tracker.Rule, error) {
	kept, err := informer.RuleOf(object)
	if err != nil {
		return nil, kept, err
	}
	rule := &resourcev1.DeviceTaintRule{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, rule); err != nil {
		return nil, kept, fmt.Errorf("read DeviceTaintRule %s: %w", object.GetName(), err)
	}
	return rule, kept, nil
}
