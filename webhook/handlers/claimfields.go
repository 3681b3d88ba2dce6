package handlers

import (
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

	// names are those of the request and the alternative around it.
	names []nameField
}

type nameField struct {
	path  *field.Path
	value string
}

// decodePlacedClaim decodes the fields of a claim or a template that placement looks at. The
// labels of a template are those that its claims get.
func decodePlacedClaim(v review.Value, template bool) (*placedClaim, error) {
	var f review.Fields
	claim := &placedClaim{}
	path := field.NewPath("spec")
	if template {
		v, path = f.At(v, "spec"), path.Child("spec")
	}
	claim.labels = f.Texts(v, "metadata", "labels")
	path = path.Child("devices", "requests")
	for i, request := range readRequests(&f, v) {
		claim.take(&request, path.Index(i))
	}
	return claim, f.Err()
}

// take reads a request. Of a kind that is not known here nothing is taken.
func (c *placedClaim) take(r *requestFields, path *field.Path) {
	own := nameField{path.Child("name"), r.Name}
	add := func(sub *subrequestFields, path *field.Path, names ...nameField) {
		c.classes = append(c.classes, sub.Class)
		c.requests = append(c.requests, placedRequest{
			placement.ClaimRequest{Path: path.Child("tolerations"), Tolerations: sub.Tolerations}, names,
		})
	}
	if r.Exactly != nil {
		add(r.Exactly, path.Child("exactly"), own)
	}
	for i := range r.FirstAvailable {
		sub, at := &r.FirstAvailable[i], path.Child("firstAvailable").Index(i)
		add(sub, at, own, nameField{at.Child("name"), sub.Name})
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
