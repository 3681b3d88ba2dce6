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
	"github.com/tollgate-dev/tollgate/policy/validation"
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

type subrequestFields struct {
	Class       string                        `json:"deviceClassName"`
	Tolerations []resourcev1.DeviceToleration `json:"tolerations"`
}

type requestFields struct {
	Exactly        subrequestFields   `json:"exactly"`
	FirstAvailable []subrequestFields `json:"firstAvailable"`
}

// claimJudge judges the tolerations in ResourceClaims, or in ResourceClaimTemplates.
// It makes no difference to it who a claim is for: a pod, a group of pods, or a pod
// that asks for an extended resource (C27); and admin access exempts from nothing.
type claimJudge struct {
	// template says that there is a claim inside of the object.
	template   bool
	policies   policySource
	tolerating *tolerating
	live       *live
	placement  *placer
	windows    *windows
	// judgesSyntax says that claims are held to the rules of Kubernetes.
	judgesSyntax bool
}

// resourceClaimControllers are the identities under which Kubernetes makes claims
// from templates.
var resourceClaimControllers = []string{
	"system:serviceaccount:kube-system:resource-claim-controller",
	"system:kube-controller-manager",
}

// Judge implements judge. An update of a spec, which is immutable, brings nothing
// new.
func (j *claimJudge) Judge(ctx context.Context, req admission.Request) (admission.Response, error) {
	current, err := j.requests(req.Object.Raw)
	if err != nil {
		return admission.Response{}, err
	}
	var old []requestFields
	if req.Operation == admissionv1.Update {
		if old, err = j.requests(req.OldObject.Raw); err != nil {
			return admission.Response{}, err
		}
	}
	policies := j.policies.Current()
	if policies == nil {
		return admission.Response{}, errNoPolicies
	}
	var made *metav1.OwnerReference
	if !j.template {
		made, err = fromTemplate(&req)
	}
	if err != nil {
		return admission.Response{}, err
	}
	documented, warnings := j.documented(current, old, made != nil)
	found, err := j.byPolicies(ctx, policies, &req, current, old, made)
	if err != nil {
		return admission.Response{}, err
	}
	return judgedBy(respond(ctx, policy.Decide(append(documented, found...)), warnings), policies), nil
}

// documented holds the tolerations to the rules of Kubernetes, and to those that it
// has in its documentation alone. A claim that is made from a template is only warned
// of by the latter: the template was judged itself, unless it was stored while nobody
// did, and then it is immutable and was legal, and to refuse its claims would keep its
// pods from starting.
func (j *claimJudge) documented(current, old []requestFields, made bool) ([]policy.Finding, []string) {
	if !j.judgesSyntax {
		return nil, nil
	}
	now, before := deviceRequests(current), deviceRequests(old)
	errs, documented := validation.ValidateTolerations(now, before, j.path())
	stricter := findings(documented)
	if made {
		for i := range stricter {
			stricter[i].Actions = []v1alpha1.ValidationAction{v1alpha1.Warn}
			stricter[i].Remedy = "the claim is let in because its template was stored before this was checked"
		}
	}
	return append(findings(errs), stricter...), validation.TolerationWarnings(now, before, j.path())
}

// fromTemplate returns the pod, or group of pods, that Kubernetes makes the claim of a
// request for; nil where it was not made by Kubernetes. Users cannot say so of
// themselves.
func fromTemplate(req *admission.Request) (*metav1.OwnerReference, error) {
	if !slices.Contains(resourceClaimControllers, req.UserInfo.Username) {
		return nil, nil
	}
	owner, err := decodeOwner(req.Object.Raw)
	if err != nil || owner == nil || !isPod(owner) && !isPodGroup(owner) {
		return nil, err
	}
	return owner, nil
}

func isPod(owner *metav1.OwnerReference) bool {
	return owner.Kind == "Pod" && owner.APIVersion == corev1.SchemeGroupVersion.String()
}

// isPodGroup looks at the group alone: its API has several versions (VS-08).
func isPodGroup(owner *metav1.OwnerReference) bool {
	group, _, _ := strings.Cut(owner.APIVersion, "/")
	return owner.Kind == "PodGroup" && group == "scheduling.k8s.io"
}

// path returns where the device requests stand.
func (j *claimJudge) path() *field.Path {
	path := field.NewPath("spec")
	if j.template {
		path = path.Child("spec")
	}
	return path.Child("devices", "requests")
}

// requests returns the device requests of a claim, or of the claim in a template.
func (j *claimJudge) requests(raw []byte) ([]requestFields, error) {
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
	var requests []requestFields
	if err := decodeFieldWithin(spec.Devices.Requests, j.path().String(), maxRequestElements, &requests); err != nil {
		return nil, &badReviewError{err}
	}
	return requests, nil
}

func deviceRequests(fields []requestFields) []validation.Request {
	requests := make([]validation.Request, len(fields))
	for i := range fields {
		requests[i].Exactly = fields[i].Exactly.Tolerations
		for _, alternative := range fields[i].FirstAvailable {
			requests[i].FirstAvailable = append(requests[i].FirstAvailable, alternative.Tolerations)
		}
	}
	return requests
}
