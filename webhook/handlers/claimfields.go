package handlers

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// maxRequestElements bounds the values in the device requests of a claim. The API
// allows 32 requests with 8 subrequests with 32 selectors each, and tolerations of
// six values, of which there should be 16.
const maxRequestElements = 100_000

// readRequests returns the device requests of a claim.
func readRequests(f *review.Fields, claim review.Value) (requests []resourcev1.DeviceRequest) {
	f.IntoWithin(maxRequestElements, &requests, claim, "spec", "devices", "requests")
	return requests
}

// alternative is the one alternative of a request for devices, or one of several.
type alternative struct {
	path        *field.Path
	class       string
	tolerations []resourcev1.DeviceToleration
	// names are those of the request and of the alternative; only one of several has a name.
	names []nameField
}

type nameField struct {
	path  *field.Path
	value string
}

// alternatives returns the alternatives of the requests at a path. Of a kind of request that is not
// known here there are none.
func alternatives(requests []resourcev1.DeviceRequest, path *field.Path) []alternative {
	var all []alternative
	for i, r := range requests {
		at := path.Index(i)
		own := nameField{at.Child("name"), r.Name}
		if e := r.Exactly; e != nil {
			all = append(all, alternative{at.Child("exactly"), e.DeviceClassName, e.Tolerations, []nameField{own}})
		}
		for k, sub := range r.FirstAvailable {
			at := at.Child("firstAvailable").Index(k)
			all = append(all, alternative{at, sub.DeviceClassName, sub.Tolerations, []nameField{own, {at.Child("name"), sub.Name}}})
		}
	}
	return all
}

// placedClaim is a claim, or the claim that a template is for, as placement looks at
// it. The labels of a template are those that its claims get.
type placedClaim struct {
	labels       map[string]string
	alternatives []alternative
	// requests are the alternatives as policies look at them.
	requests []placement.ClaimRequest
}

// placedClaim returns the claim or the template of a request.
func (r request) placedClaim() *placedClaim {
	v := r.claim(r.New)
	claim := &placedClaim{labels: r.Texts(v, "metadata", "labels"), alternatives: alternatives(readRequests(&r.Fields, v), r.requestsPath())}
	for _, a := range claim.alternatives {
		claim.requests = append(claim.requests, placement.ClaimRequest{Path: a.path.Child("tolerations"), Tolerations: a.tolerations})
	}
	return claim
}
