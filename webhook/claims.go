package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
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

// ownedFields are the fields that tell for whom an object was made.
type ownedFields struct {
	Metadata struct {
		OwnerReferences json.RawMessage `json:"ownerReferences"`
	} `json:"metadata"`
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

// resourceClaimControllers are the identities under which Kubernetes makes claims
// from templates.
var resourceClaimControllers = []string{
	"system:serviceaccount:kube-system:resource-claim-controller",
	"system:kube-controller-manager",
}

// Judge implements judge. An update of a spec, which is immutable, brings nothing
// new. Nor does a claim that is made from a template, which was judged itself, unless
// it was stored while nobody did: then it is immutable and was legal in Kubernetes,
// and to refuse its claims would keep its pods from starting. So they are warned of.
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
	errs, documented := devices.ValidateTolerations(current, old, j.path())
	stricter := findings(documented)
	if len(stricter) > 0 {
		made, err := j.fromTemplate(req)
		if err != nil {
			return admission.Response{}, err
		}
		if made {
			for i := range stricter {
				stricter[i].Actions = []v1alpha1.ValidationAction{v1alpha1.Warn}
				stricter[i].Remedy = "the claim is let in because its template was stored before this was checked"
			}
		}
	}
	found := append(findings(errs), stricter...)
	return respond(policy.Decide(found), devices.TolerationWarnings(current, old, j.path())), nil
}

// fromTemplate reports whether Kubernetes makes the claim of a request, for a pod or
// for a group of pods. Users cannot say so of themselves.
func (j *claimJudge) fromTemplate(req admission.Request) (bool, error) {
	if j.template || !slices.Contains(resourceClaimControllers, req.UserInfo.Username) {
		return false, nil
	}
	var fields ownedFields
	if err := unmarshal(req.Object.Raw, &fields); err != nil {
		return false, &badReviewError{fmt.Errorf("decode claim: %w", err)}
	}
	var owners []metav1.OwnerReference
	if err := decodeField(fields.Metadata.OwnerReferences, "metadata.ownerReferences", &owners); err != nil {
		return false, &badReviewError{err}
	}
	return slices.ContainsFunc(owners, isPodOrGroup), nil
}

// isPodOrGroup reports whether owner is a controller that claims are made for. The
// API of groups has several versions (VS-08).
func isPodOrGroup(owner metav1.OwnerReference) bool {
	if owner.Controller == nil || !*owner.Controller {
		return false
	}
	group, _, _ := strings.Cut(owner.APIVersion, "/")
	return owner.Kind == "Pod" && owner.APIVersion == corev1.SchemeGroupVersion.String() ||
		owner.Kind == "PodGroup" && group == "scheduling.k8s.io"
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
