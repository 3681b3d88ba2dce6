package explain

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/devices"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/evictor"
)

// What is read besides what package state reads.
var (
	eventResource     = schema.GroupResource{Resource: "events"}
	namespaceResource = schema.GroupResource{Resource: "namespaces"}
	sliceResource     = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceslices"}
	classResource     = schema.GroupResource{Group: resourcev1.GroupName, Resource: "deviceclasses"}
)

// reader reads what an explanation follows from.
type reader struct {
	*cli.Clients
	question

	cluster *state.Cluster
	world   *World
}

// read returns the world as the user may see it.
func (r *reader) read(ctx context.Context) (*World, error) {
	wants := state.Wants{Lease: r.lease, Policies: true, Node: state.Everything[corev1.Node]}
	taken := Taken{}
	if r.kind == kindPod || r.kind == kindClaim {
		wants.Namespace = r.namespace
		wants.Pod = func(pod *corev1.Pod) bool { return pod.Namespace == r.namespace }
		wants.Claim = func(claim *resourcev1.ResourceClaim) bool {
			taken.Add(claim)
			return claim.Namespace == r.namespace
		}
	}
	var err error
	if r.cluster, err = state.Read(ctx, r.Clients, r.now, wants); err != nil {
		return nil, err
	}
	c := r.cluster
	r.world = &World{
		Tracker: c.Tracker, Rules: c.Rules,
		Evictions: evictions.Shown(c), Policies: c.Policies, TaintPolicies: c.TaintPolicies,
		Nodes: c.Nodes, Pods: c.Pods, Claims: c.Claims, Taken: taken,
		Missing: c.Missing(), Unread: map[string]bool{},
	}
	for _, resource := range []string{"nodes", "gatepolicies", "resourceclaims", "resourceslices"} {
		r.world.Unread[resource] = c.Unread(resource)
	}
	for _, read := range []func(context.Context) error{r.namespaceObject, r.events, r.devices} {
		if err := read(ctx); err != nil {
			return nil, err
		}
	}
	return r.world, nil
}

// lacks takes an error of what the user may not see, or what is not served, and says what
// the answer lacks because of it. Any other error it returns.
func (r *reader) lacks(err error, verb string, resource schema.GroupResource, without string) error {
	switch {
	case err == nil, errors.Is(err, cli.ErrNotServed):
		return nil
	case apierrors.IsForbidden(err):
		r.world.Unread[resource.Resource] = true
		r.world.Missing = append(r.world.Missing,
			fmt.Sprintf("you may not %s %s: %s%s", verb, resource.Resource, without, cli.Advice(err, verb, resource)))
		return nil
	default:
		return err
	}
}

// namespaceObject reads the namespace that is asked about.
func (r *reader) namespaceObject(ctx context.Context) error {
	if r.kind != kindPod && r.kind != kindClaim {
		return nil
	}
	namespace, err := r.Kubernetes.CoreV1().Namespaces().Get(ctx, r.namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		r.world.Namespace = namespace
		return nil
	}
	if !apierrors.IsForbidden(err) {
		return cli.Failed(err, "read namespace "+r.namespace, "get", namespaceResource)
	}
	return r.lacks(err, "get", namespaceResource, "what TolerationPolicies and PlacementPolicies say is left out")
}

// events reads the events that may tell of what is asked about.
func (r *reader) events(ctx context.Context) error {
	type query struct {
		namespace string
		selector  fields.Selector
	}
	term := fields.OneTermEqualSelector
	queries := []query{}
	switch r.kind {
	case kindPod:
		queries = append(queries, query{r.namespace, term("involvedObject.name", r.name)})
		if !r.present() {
			queries = append(queries, query{r.namespace, term("reason", "FailedCreate")})
		}
		// Events about objects without a namespace are in this one.
		for _, reason := range []string{"TaintManagerEviction", "DeviceTaintManagerEviction"} {
			queries = append(queries, query{metav1.NamespaceDefault, term("reason", reason)})
		}
	case kindNode:
		queries = append(queries, query{metav1.NamespaceDefault, term("involvedObject.name", r.name)})
	}
	if r.kind != kindClaim {
		for _, reason := range evictor.EventReasonsHeld() {
			queries = append(queries, query{metav1.NamespaceDefault, term("reason", reason)})
		}
	}
	for _, q := range queries {
		client := r.Kubernetes.CoreV1().Events(q.namespace)
		options := metav1.ListOptions{FieldSelector: q.selector.String()}
		err := cli.Each(ctx, r.Clients, eventResource, cli.Pages(client.List), options, func(event *corev1.Event) error {
			r.world.Events = append(r.world.Events, *event)
			r.world.Evictions.Said.Add(event)
			return nil
		})
		if err != nil {
			without := "what pods that are gone died of is not known"
			if q.namespace != r.namespace {
				without = "what nodes, rules and patches were told of evictions, and of pods that are held, is not known"
			}
			return r.lacks(err, "list", eventResource, without)
		}
	}
	return nil
}

// present reports whether the pod that is asked about exists.
func (r *reader) present() bool {
	for _, pod := range r.world.Pods {
		if pod.Name == r.name {
			return true
		}
	}
	return false
}

// devices reads which devices there are, if the answer may depend on it.
func (r *reader) devices(ctx context.Context) error {
	if r.kind != kindDevice && !r.unallocated() {
		return nil
	}
	if _, err := r.Version(ctx, sliceResource, "v1"); err != nil {
		return r.lacks(err, "list", sliceResource, "")
	}
	const without = "it is not known which devices there are"
	classes := map[string]*resourcev1.DeviceClass{}
	classClient := r.Kubernetes.ResourceV1().DeviceClasses()
	err := cli.Each(ctx, r.Clients, classResource, cli.Pages(classClient.List), metav1.ListOptions{}, func(class *resourcev1.DeviceClass) error {
		classes[class.Name] = class
		return nil
	})
	if err != nil {
		return r.lacks(err, "list", classResource, without)
	}
	var slices []*resourcev1.ResourceSlice
	sliceClient := r.Kubernetes.ResourceV1().ResourceSlices()
	err = cli.Each(ctx, r.Clients, sliceResource, cli.Pages(sliceClient.List), metav1.ListOptions{}, func(slice *resourcev1.ResourceSlice) error {
		slice.ManagedFields = nil // often half of it
		slices = append(slices, slice)
		return nil
	})
	if err != nil {
		return r.lacks(err, "list", sliceResource, without)
	}
	r.world.Classes = classes
	r.world.Inventory = func(filter devices.Filter, also ...*resourcev1.DeviceClass) *devices.Inventory {
		return r.inventory(filter, slices, also)
	}
	return nil
}

// unallocated reports whether claims of the namespace wait for devices.
func (r *reader) unallocated() bool {
	for _, claim := range r.world.Claims {
		if claim.Status.Allocation == nil {
			return true
		}
	}
	return false
}

// inventory returns the devices that satisfy a filter.
func (r *reader) inventory(filter devices.Filter, slices []*resourcev1.ResourceSlice, also []*resourcev1.DeviceClass) *devices.Inventory {
	inventory := devices.NewTable(filter)
	for i := range r.cluster.Patches {
		inventory.AddPatch(&r.cluster.Patches[i])
	}
	for _, class := range r.world.Classes {
		inventory.AddClass(class)
	}
	for _, class := range also {
		inventory.AddClass(class)
	}
	for name, rule := range r.cluster.Rule {
		known, _ := r.cluster.Tracker.Rule(name)
		inventory.AddRule(rule, known.Unsupported)
	}
	for _, slice := range slices {
		inventory.AddSlice(slice)
	}
	return inventory
}
