package explain

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/devices"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
)

// World is what is known of a cluster. It must not be written to while it is asked about.
type World struct {
	Tracker *tracker.Tracker
	Rules   evictor.Rules
	// Evictions says who evicts, when, and what keeps pods where they are.
	Evictions *evictions.Cluster
	// Policies are those that are stored.
	Policies *policyset.Set
	// TaintPolicies are the objects that policies are made of.
	TaintPolicies []v1alpha1.TaintPolicy

	// Nodes are all nodes. Pods and Claims are those of the namespace that is asked about.
	Nodes  []*corev1.Node
	Pods   []*corev1.Pod
	Claims []*resourcev1.ResourceClaim
	// Namespace is that namespace; nil if it is not known.
	Namespace *corev1.Namespace

	// Inventory returns the devices that satisfy a filter, as the scheduler has to see
	// them, with classes beside those of the cluster. Nil where devices are not known.
	Inventory func(filter devices.Filter, also ...*resourcev1.DeviceClass) *devices.Inventory
	// Taken are the devices that claims of all namespaces have.
	Taken Taken
	// Classes are the DeviceClasses, by name.
	Classes map[string]*resourcev1.DeviceClass

	// Events are those that may tell of what is asked about, in no order: events of the
	// object, those that say that pods could not be created, and those about evictions on
	// the objects that carry taints.
	Events []corev1.Event
	// Unread are the resources that the user may not see: what is not there of them may be.
	Unread map[string]bool
	// Missing says what was not to be read, and what an answer lacks because of it.
	Missing []string
}

// node returns a node, or nil.
func (w *World) node(name string) *corev1.Node {
	for _, node := range w.Nodes {
		if node.Name == name {
			return node
		}
	}
	return nil
}

// pod returns a pod of the namespace, or nil.
func (w *World) pod(name string) *corev1.Pod {
	for _, pod := range w.Pods {
		if pod.Name == name {
			return pod
		}
	}
	return nil
}

// claim returns a claim of the namespace, or nil.
func (w *World) claim(name string) *resourcev1.ResourceClaim {
	for _, claim := range w.Claims {
		if claim.Name == name {
			return claim
		}
	}
	return nil
}
