package webhook

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/devices"
)

// maxRequestElements bounds the values in the device requests of a claim. The API
// allows 32 requests with 8 subrequests with 32 selectors each, and tolerations of
// six values, of which there should be 16.
const maxRequestElements = 100_000

// claimSpecFields are the fields of a claim's spec that admission looks at.
type claimSpecFields struct {
	Devices struct {
		Requests json.RawMessage `json:"requests"`
	} `json:"devices"`
}

type claimFields struct {
	Spec claimSpecFields `json:"spec"`
}

type templateFields struct {
	Spec struct {
		Spec claimSpecFields `json:"spec"`
	} `json:"spec"`
}

type tolerationFields struct {
	Tolerations []resourcev1.DeviceToleration `json:"tolerations"`
}

type requestFields struct {
	Exactly        tolerationFields   `json:"exactly"`
	FirstAvailable []tolerationFields `json:"firstAvailable"`
}

// claimJudge judges the tolerations in ResourceClaims, or in ResourceClaimTemplates.
type claimJudge struct {
	// template says that there is a claim inside of the object.
	template bool
}

// Judge implements judge. An update of a spec, which is immutable, brings nothing
// new.
func (j *claimJudge) Judge(_ context.Context, req admission.Request) (admission.Response, error) {
	current, err := j.requests(req.Object.Raw)
	if err != nil {
		return admission.Response{}, err
	}
	var old []devices.Request
	if req.Operation == admissionv1.Update {
		if old, err = j.requests(req.OldObject.Raw); err != nil {
			return admission.Response{}, err
		}
	}
	found := findings(devices.ValidateTolerations(current, old, j.path()))
	return respond(policy.Decide(found), devices.TolerationWarnings(current, old, j.path())), nil
}

// path returns where the device requests stand.
func (j *claimJudge) path() *field.Path {
	path := field.NewPath("spec")
	if j.template {
		path = path.Child("spec")
	}
	return path.Child("devices", "requests")
}

func (j *claimJudge) requests(raw []byte) ([]devices.Request, error) {
	var err error
	var spec claimSpecFields
	if j.template {
		var fields templateFields
		err = unmarshal(raw, &fields)
		spec = fields.Spec.Spec
	} else {
		var fields claimFields
		err = unmarshal(raw, &fields)
		spec = fields.Spec
	}
	if err != nil {
		return nil, &badReviewError{fmt.Errorf("decode claim: %w", err)}
	}
	found, err := decodeRequests(spec.Devices.Requests, j.path().String())
	if err != nil {
		return nil, &badReviewError{err}
	}
	return found, nil
}

func decodeRequests(raw json.RawMessage, path string) ([]devices.Request, error) {
	var fields []requestFields
	if err := decodeFieldWithin(raw, path, maxRequestElements, &fields); err != nil {
		return nil, err
	}
	found := make([]devices.Request, len(fields))
	for i := range fields {
		found[i].Exactly = fields[i].Exactly.Tolerations
		for _, alternative := range fields[i].FirstAvailable {
			found[i].FirstAvailable = append(found[i].FirstAvailable, alternative.Tolerations)
		}
	}
	return found, nil
}
