package explain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/devices"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

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
	Events []corev1.Event
}

// named returns the object with a name, or nil.
func named[T interface{ GetName() string }](objects []T, name string) (object T) {
	if at := slices.IndexFunc(objects, func(o T) bool { return o.GetName() == name }); at >= 0 {
		object = objects[at]
	}
	return object
}

func (w *World) node(name string) *corev1.Node { return named(w.Nodes, name) }
