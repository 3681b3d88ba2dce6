package handlers

import (
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// placedClaim is a claim, or the claim that a template is for, as placement looks at
// it.
type placedClaim struct {
	labels   map[string]string
	classes  []string
	requests []placedRequest
}

// placedRequest is a request, or an alternative of one.
type placedRequest struct {
	placement.ClaimRequest

	// pointer is its own, and names are those of the request and the alternative around it.
	pointer string
	names   []pointedName
}

type pointedName struct{ pointer, value string }

// decodePlacedClaim decodes the fields of a claim or a template that placement looks at. The
// labels of a template are those that its claims get.

func decodePlacedClaim(v review.Value, template bool) (*placedClaim, error) {
	var f review.Fields
	claim := &placedClaim{}
	path, pointer := field.NewPath("spec"), "/spec"
	if template {
		v, path, pointer = f.At(v, "spec"), path.Child("spec"), pointer+"/spec"
	}
	claim.labels = f.Texts(v, "metadata", "labels")
	path, pointer = path.Child("devices", "requests"), pointer+"/devices/requests"
	for i, request := range readRequests(&f, v) {
		claim.take(&request, path.Index(i), pointer+"/"+strconv.Itoa(i))
	}
	return claim, f.Err()
}

// take reads a request. Of a kind that is not known here nothing is taken.
func (c *placedClaim) take(r *requestFields, path *field.Path, pointer string) {
	own := pointedName{pointer: pointer + "/name", value: r.Name}
	add := func(sub *subrequestFields, path *field.Path, pointer string, names ...pointedName) {
		c.classes = append(c.classes, sub.Class)
		c.requests = append(c.requests, placedRequest{
			ClaimRequest: placement.ClaimRequest{Path: path.Child("tolerations"), Tolerations: sub.Tolerations},
			pointer:      pointer,
			names:        names,
		})
	}
	if r.Exactly != nil {
		add(r.Exactly, path.Child("exactly"), pointer+"/exactly", own)
	}
	for i := range r.FirstAvailable {
		sub, at := &r.FirstAvailable[i], pointer+"/firstAvailable/"+strconv.Itoa(i)
		add(sub, path.Child("firstAvailable").Index(i), at, own, pointedName{at + "/name", sub.Name})
	}
}

// claimRequests returns the requests as policies look at them.
func (c *placedClaim) claimRequests() []placement.ClaimRequest {
	requests := make([]placement.ClaimRequest, len(c.requests))
	for i := range c.requests {
		requests[i] = c.requests[i].ClaimRequest
	}
	return requests
}
