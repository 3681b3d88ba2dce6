package webhook

import (
	"encoding/json"
	"fmt"
	"strconv"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy/placement"
)

// placedClaim is a claim, or the claim that a template is for, as placement looks at
// it.
type placedClaim struct {
	labels   map[string]string
	classes  []string
	requests []placedRequest
	// mark is the annotation that says which tolerations are windows.
	mark mark
}

// placedRequest is a request, or an alternative of one.
type placedRequest struct {
	placement.ClaimRequest

	// pointer is where it stands, and names are of what it stands in.
	pointer string
	names   []pointedName
}

type pointedName struct{ pointer, value string }

// deviceRequest are the fields of a request that placement looks at.
type deviceRequest struct {
	Name           string          `json:"name"`
	Exactly        *oneRequest     `json:"exactly"`
	FirstAvailable []oneSubrequest `json:"firstAvailable"`
}

type oneRequest struct {
	DeviceClassName string                        `json:"deviceClassName"`
	Tolerations     []resourcev1.DeviceToleration `json:"tolerations"`
}

type oneSubrequest struct {
	Name            string                        `json:"name"`
	DeviceClassName string                        `json:"deviceClassName"`
	Tolerations     []resourcev1.DeviceToleration `json:"tolerations"`
}

// decodePlacedClaim returns what placement knows of a claim or of a template. The
// labels of a template are those that its claims get.
func decodePlacedClaim(raw []byte, template bool) (*placedClaim, error) {
	claim, err := readPlacedClaim(raw, template)
	if err != nil {
		return nil, &badReviewError{fmt.Errorf("decode claim: %w", err)}
	}
	claim.mark, err = markOf(raw, template)
	return claim, err
}

func readPlacedClaim(raw []byte, template bool) (*placedClaim, error) {
	object := json.RawMessage(raw)
	path, pointer := field.NewPath("spec"), "/spec"
	if template {
		if err := findMembers(raw, member{"spec", &object}); err != nil {
			return nil, err
		}
		path, pointer = path.Child("spec"), pointer+"/spec"
	}
	var metadata, labels, spec, devices, requests json.RawMessage
	if err := findMembers(object, member{"metadata", &metadata}, member{"spec", &spec}); err != nil {
		return nil, err
	}
	if err := findMembers(metadata, member{"labels", &labels}); err != nil {
		return nil, err
	}
	if err := findMembers(spec, member{"devices", &devices}); err != nil {
		return nil, err
	}
	if err := findMembers(devices, member{"requests", &requests}); err != nil {
		return nil, err
	}
	claim := &placedClaim{}
	if err := decodeField(labels, "metadata.labels", &claim.labels); err != nil {
		return nil, err
	}
	var list []deviceRequest
	path, pointer = path.Child("devices", "requests"), pointer+"/devices/requests"
	if err := decodeFieldWithin(requests, path.String(), maxRequestElements, &list); err != nil {
		return nil, err
	}
	for i := range list {
		claim.take(&list[i], path.Index(i), pointer+"/"+strconv.Itoa(i))
	}
	return claim, nil
}

// take reads a request. Of a kind that is not known here nothing is taken.
func (c *placedClaim) take(r *deviceRequest, path *field.Path, pointer string) {
	own := pointedName{pointer: pointer + "/name", value: r.Name}
	if r.Exactly != nil {
		c.add(r.Exactly.DeviceClassName, placedRequest{
			ClaimRequest: placement.ClaimRequest{Path: path.Child("exactly", "tolerations"), Tolerations: r.Exactly.Tolerations},
			pointer:      pointer + "/exactly",
			names:        []pointedName{own},
		})
	}
	for i := range r.FirstAvailable {
		s, at := &r.FirstAvailable[i], pointer+"/firstAvailable/"+strconv.Itoa(i)
		c.add(s.DeviceClassName, placedRequest{
			ClaimRequest: placement.ClaimRequest{Path: path.Child("firstAvailable").Index(i).Child("tolerations"), Tolerations: s.Tolerations},
			pointer:      at,
			names:        []pointedName{own, {pointer: at + "/name", value: s.Name}},
		})
	}
}

func (c *placedClaim) add(class string, r placedRequest) {
	c.classes = append(c.classes, class)
	c.requests = append(c.requests, r)
}

// claimRequests returns the requests as policies look at them.
func (c *placedClaim) claimRequests() []placement.ClaimRequest {
	requests := make([]placement.ClaimRequest, len(c.requests))
	for i := range c.requests {
		requests[i] = c.requests[i].ClaimRequest
	}
	return requests
}
