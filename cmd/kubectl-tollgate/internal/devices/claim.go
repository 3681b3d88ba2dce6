package devices

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Claim is a ResourceClaim that a device is allocated to.
type Claim struct {
	Namespace, Name string
	// AdminAccess is true if the claim has the device beside those that use it.
	AdminAccess bool
	// Consumers are the names in reservedFor: pods by name, others as resource/name.
	Consumers []string
}

// AddClaim adds a ResourceClaim. Claims without devices to show are dropped.
func (v *Inventory) AddClaim(claim *resourcev1.ResourceClaim) {
	if claim.Status.Allocation == nil {
		return
	}
	var consumers []string
	for i := range claim.Status.ReservedFor {
		consumers = append(consumers, consumer(&claim.Status.ReservedFor[i]))
	}
	results := claim.Status.Allocation.Devices.Results
	for i := range results {
		id := device.ID{Driver: results[i].Driver, Pool: results[i].Pool, Name: results[i].Device}
		if v.filter.names(id) {
			v.claims[id] = withClaim(v.claims[id], Claim{
				Namespace: claim.Namespace, Name: claim.Name, Consumers: consumers,
				AdminAccess: results[i].AdminAccess != nil && *results[i].AdminAccess,
			})
		}
	}
}

// withClaim adds a claim, which may have several shares of a device, and be listed twice.
func withClaim(claims []Claim, c Claim) []Claim {
	at, found := slices.BinarySearchFunc(claims, c, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if !found {
		return slices.Insert(claims, at, c)
	}
	c.AdminAccess = c.AdminAccess && claims[at].AdminAccess
	claims[at] = c
	return claims
}

func consumer(c *resourcev1.ResourceClaimConsumerReference) string {
	if c.APIGroup == corev1.GroupName && c.Resource == "pods" {
		return c.Name
	}
	return c.Resource + "/" + c.Name
}
