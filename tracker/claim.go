package tracker

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// ClaimName names a ResourceClaim as pods do.
type ClaimName = types.NamespacedName

// Claim is what is kept of a ResourceClaim. Its slices are shared and must not be
// written to.
type Claim struct {
	ClaimName
	UID             types.UID
	ResourceVersion string
	// Allocated is true while the claim has an allocation.
	Allocated bool
	// Devices are the results of the allocation.
	Devices []AllocatedDevice
	// Consumers are who the claim is reserved for.
	Consumers []resourcev1.ResourceClaimConsumerReference
	// Controller is the owner that the claim was generated for, nil for none.
	Controller *metav1.OwnerReference
	// Window says which of the tolerations were given to the claim in mode Window; nil
	// for none.
	Window *Window
}

// AllocatedDevice is one device of an allocation. Which share of it was allocated
// does not matter: a taint is on the whole device (DE-14).
type AllocatedDevice struct {
	ID device.ID
	// Tolerations were copied from the request when the device was allocated
	// (DE-15). Schedulers before Kubernetes 1.35 made no copy (k/k#134479): then they
	// are those of the request itself, which cannot change either.
	Tolerations []resourcev1.DeviceToleration
}

// AllocatedDevices returns the devices of an allocation. The requests are those of the
// claim.
func AllocatedDevices(requests []resourcev1.DeviceRequest, results []resourcev1.DeviceRequestAllocationResult) []AllocatedDevice {
	devices := make([]AllocatedDevice, 0, len(results))
	for i := range results {
		tolerations := results[i].Tolerations
		if len(tolerations) == 0 {
			tolerations = requested(requests, results[i].Request)
		}
		devices = append(devices, AllocatedDevice{
			ID:          device.ID{Driver: results[i].Driver, Pool: results[i].Pool, Name: results[i].Device},
			Tolerations: tolerations,
		})
	}
	return devices
}

// requested returns the tolerations of a request, or of one of its alternatives, by the
// name that results of an allocation give it.
func requested(requests []resourcev1.DeviceRequest, name string) []resourcev1.DeviceToleration {
	name, alternative, _ := strings.Cut(name, "/")
	for i := range requests {
		request := &requests[i]
		if request.Name != name {
			continue
		}
		if alternative == "" && request.Exactly != nil {
			return request.Exactly.Tolerations
		}
		for j := range request.FirstAvailable {
			if request.FirstAvailable[j].Name == alternative {
				return request.FirstAvailable[j].Tolerations
			}
		}
	}
	return nil
}

// ClaimOf returns what is kept of claim.
func ClaimOf(claim *resourcev1.ResourceClaim) Claim {
	kept := Claim{
		ClaimName: ClaimName{Namespace: claim.Namespace, Name: claim.Name},
		UID:       claim.UID, ResourceVersion: claim.ResourceVersion,
		Consumers:  claim.Status.ReservedFor,
		Controller: metav1.GetControllerOfNoCopy(claim),
		Window:     windowOf(claim.Annotations),
	}
	if allocation := claim.Status.Allocation; allocation != nil {
		kept.Allocated, kept.Devices = true, AllocatedDevices(claim.Spec.Devices.Requests, allocation.Devices.Results)
	}
	return kept
}

// PodClaim is a claim that a pod uses.
type PodClaim struct {
	// Name is that of the claim, in the namespace of the pod.
	Name string
	// Generated is true when the claim was made for the pod, or for its PodGroup,
	// and false when the pod names it. What was made for another pod is not meant
	// (DE-05).
	Generated bool
}

// usableBy reports whether the claim gives its devices to a pod that refers to it
// as ref. Referring to it is not enough (DE-06), and neither is being reserved for
// (DE-07). With groups, reservations for the pod's PodGroup count too (DE-08).
func (c *Claim) usableBy(pod *Pod, ref PodClaim, groups bool) bool {
	if !c.Allocated || (ref.Generated && !c.madeFor(pod, groups)) {
		return false
	}
	for _, consumer := range c.Consumers {
		if consumer.UID == pod.UID {
			return true
		}
		if groups && pod.PodGroup != "" && consumer.Name == pod.PodGroup &&
			consumer.Resource == "podgroups" && consumer.APIGroup == schedulingv1beta1.GroupName {
			return true
		}
	}
	return false
}

// madeFor reports whether the claim was generated for a pod or for its PodGroup,
// in whatever version of the PodGroup API.
func (c *Claim) madeFor(pod *Pod, groups bool) bool {
	switch {
	case c.Controller == nil:
		return false
	case c.Controller.UID == pod.UID:
		return true
	}
	return groups && pod.PodGroup != "" && c.Controller.Name == pod.PodGroup && c.Controller.Kind == "PodGroup" &&
		strings.HasPrefix(c.Controller.APIVersion, schedulingv1beta1.GroupName+"/")
}
