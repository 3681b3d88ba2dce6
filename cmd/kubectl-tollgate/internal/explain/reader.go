package explain

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/devices"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/evictor"
)

// reader reads the World of an explanation.
type reader struct {
	*cli.Clients
	question
	*World

	// inventory has the claims that were read and, after devices, the devices.
	inventory *devices.Inventory
}

// read returns the World as the user may see it.
func (r *reader) read(ctx context.Context) (*World, error) {
	wants := state.Wants{Lease: r.lease, Policies: true, Node: func(*corev1.Node) bool { return true }}
	r.inventory = devices.NewTable(devices.Filter{Driver: r.device.Driver, Pool: r.device.Pool, Device: r.device.Name})
	namespaced := r.kind == kindPod || r.kind == kindClaim
	if namespaced {
		wants.Namespace = r.namespace
		wants.Pod = func(pod *corev1.Pod) bool { return pod.Namespace == r.namespace }
		wants.Claim = func(claim *resourcev1.ResourceClaim) bool {
			r.inventory.AddClaim(claim)
			return claim.Namespace == r.namespace
		}
	}
	c, err := state.Read(ctx, r.Clients, r.now, wants)
	if err != nil {
		return nil, err
	}
	r.World = &World{Cluster: c, Evictions: evictions.NewCluster(c)}
	if namespaced {
		namespace, failure := r.Kubernetes.CoreV1().Namespaces().Get(ctx, r.namespace, metav1.GetOptions{})
		switch {
		case failure == nil:
			r.Namespace = namespace
		case !apierrors.IsNotFound(failure):
			failure = cli.Failed(failure, "read namespace "+r.namespace, "get", state.NamespaceResource)
			err = c.Lack(failure, "get", state.NamespaceResource, "what TolerationPolicies and PlacementPolicies say is left out")
		}
	}
	if err == nil {
		err = r.events(ctx)
	}
	if err == nil && (r.kind == kindDevice || slices.ContainsFunc(c.Claims, func(claim *resourcev1.ResourceClaim) bool { return claim.Status.Allocation == nil })) {
		err = r.devices(ctx)
	}
	return r.World, err
}

// events reads the events that the explanation may need.
func (r *reader) events(ctx context.Context) error {
	type query struct{ namespace, field, value string }
	var queries []query
	// Events about objects without a namespace are in this one.
	const cluster = metav1.NamespaceDefault
	reasons := []string{evictor.EventHeld, evictor.EventReleased}
	switch r.kind {
	case kindClaim:
		return nil
	case kindNode:
		queries = []query{{cluster, "involvedObject.name", r.name}}
	case kindPod:
		queries = []query{{r.namespace, "involvedObject.name", r.name}}
		if named(r.Pods, r.name) == nil {
			queries = append(queries, query{r.namespace, "reason", reasonFailedCreate})
		}
		reasons = append(reasons, reasonNodeEviction, reasonDeviceEviction)
	}
	for _, reason := range reasons {
		queries = append(queries, query{cluster, "reason", reason})
	}
	read := map[string]*corev1.Event{} // by namespace and name: queries overlap
	defer func() { r.Events = slices.Collect(maps.Values(read)) }()
	for _, q := range queries {
		source := state.NewSource(r.Clients, state.EventResource, r.Kubernetes.CoreV1().Events(q.namespace), &corev1.Event{})
		source.FieldSelector = fields.OneTermEqualSelector(q.field, q.value).String()
		err := source.Each(ctx, r.Clients, "", func(object runtime.Object) error {
			event := object.(*corev1.Event)
			read[event.Namespace+"/"+event.Name] = event
			r.Evictions.Events.Add(object)
			return nil
		})
		if err != nil {
			without := "what pods that are gone died of is not known"
			if q.namespace != r.namespace {
				without = "what nodes, rules and patches were told of evictions, and of pods that are held, is not known"
			}
			return r.Lack(err, "list", state.EventResource, without)
		}
	}
	return nil
}

// devices reads ResourceSlices and DeviceClasses.
func (r *reader) devices(ctx context.Context) error {
	if _, err := state.Version(ctx, r.Clients, state.SliceResource); err != nil {
		return r.Lack(err, "list", state.SliceResource, "")
	}
	for _, patch := range r.Patches {
		r.inventory.AddPatch(&patch)
	}
	for name, rule := range r.Rule {
		kept, _ := r.Tracker.Rule(name)
		r.inventory.AddRule(rule, kept.Unsupported)
	}
	r.Classes = map[string]*resourcev1.DeviceClass{}
	for _, source := range devices.Published(r.Clients, r.device.Driver) {
		err := source.Each(ctx, r.Clients, "", func(object runtime.Object) error {
			if class, ok := object.(*resourcev1.DeviceClass); ok {
				r.Classes[class.Name] = class
			}
			return r.inventory.Add(object)
		})
		if err != nil {
			return r.Lack(err, "list", source.Resource, "it is not known which devices there are")
		}
	}
	r.Inventory = r.inventory
	return nil
}

// World is the state of a cluster from which explanations follow. It has all nodes, and the pods
// and claims of one namespace. It is read-only.
type World struct {
	*state.Cluster

	// Evictions returns the eviction and the hold of a pod.
	Evictions *evictions.Cluster
	// Namespace is the namespace of the pods and claims; nil if unknown.
	Namespace *corev1.Namespace

	// Inventory has the device that is explained, or else all, with the claims of all namespaces. It
	// is nil if devices are not known.
	Inventory *devices.Inventory
	// Classes are the DeviceClasses, by name.
	Classes map[string]*resourcev1.DeviceClass

	// Events are, in no order: events of the object, those about pods that could not be created,
	// and those about evictions on the objects with taints.
	Events []*corev1.Event
}

// named returns the object with a name, or nil.
func named[T interface{ GetName() string }](objects []T, name string) (object T) {
	for _, o := range objects {
		if o.GetName() == name {
			return o
		}
	}
	return object
}
