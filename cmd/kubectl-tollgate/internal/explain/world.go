package explain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/devices"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// World is the state of a cluster from which explanations follow. It has all nodes, and the pods
// and claims of one namespace. It is read-only.
type World struct {
	*state.Cluster

	// Evictions returns the eviction and the hold of a pod.
	Evictions *evictions.Cluster
	// Namespace is the namespace of the pods and claims; nil if unknown.
	Namespace *corev1.Namespace

	// Inventory returns the devices that match a filter, also with classes that the cluster does
	// not have. It is nil if devices are not known.
	Inventory func(filter devices.Filter, also ...*resourcev1.DeviceClass) *devices.Inventory
	// Taken are the devices of the claims of all namespaces.
	Taken Taken
	// Classes are the DeviceClasses, by name.
	Classes map[string]*resourcev1.DeviceClass

	// Events are, in no order: events of the object, those about pods that could not be created,
	// and those about evictions on the objects with taints.
	Events []corev1.Event
	// Unread are the resources that the user may not read: their objects may exist.
	Unread map[string]bool
	// Missing are sentences about missing data.
	Missing []string
}

// Taken are the devices that claims have, except by admin access, which does not exclude others.
type Taken map[device.ID]bool

// Add adds the devices of a claim.
func (t Taken) Add(claim *resourcev1.ResourceClaim) {
	if claim.Status.Allocation == nil {
		return
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.AdminAccess == nil || !*r.AdminAccess {
			t[device.ID{Driver: r.Driver, Pool: r.Pool, Name: r.Device}] = true
		}
	}
}

// named returns the object with a name, or nil.
func named[T interface{ GetName() string }](objects []T, name string) (object T) {
	if at := slices.IndexFunc(objects, func(o T) bool { return o.GetName() == name }); at >= 0 {
		object = objects[at]
	}
	return object
}

func (w *World) node(name string) *corev1.Node { return named(w.Nodes, name) }
