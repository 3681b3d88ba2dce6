package handlers

import (
	"context"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/policy/validation"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// maxRequestElements bounds the values in the device requests of a claim. The API
// allows 32 requests with 8 subrequests with 32 selectors each, and tolerations of
// six values, of which there should be 16.
const maxRequestElements = 100_000

// requestFields are the fields of a request for devices that admission looks at.
type requestFields struct {
	Name           string             `json:"name"`
	Exactly        *subrequestFields  `json:"exactly"`
	FirstAvailable []subrequestFields `json:"firstAvailable"`
}

// subrequestFields is the one alternative of a request, or one of several; only these have a
// name.
type subrequestFields struct {
	Name        string                        `json:"name"`
	Class       string                        `json:"deviceClassName"`
	Tolerations []resourcev1.DeviceToleration `json:"tolerations"`
}

// claimHandler reviews the tolerations in ResourceClaims, or in ResourceClaimTemplates. The
// consumer of a claim makes no difference: a pod, a group of pods, or a pod that asks for an
// extended resource (C27); and admin access exempts from nothing.
type claimHandler struct {
	*reviewer

	// template says that there is a claim inside of the object.
	template bool
	live     *live
}

// resourceClaimControllers are the identities under which Kubernetes makes claims
// from templates.
var resourceClaimControllers = []string{
	"system:serviceaccount:kube-system:resource-claim-controller",
	"system:kube-controller-manager",
}

// mutate adds to claims, or to the claims of templates, the tolerations of PlacementPolicies,
// and in mode Window those of EvictionPolicies. The spec of a claim is immutable, so they are
// added when it is created or never.
func (h *claimHandler) mutate(ctx context.Context, req *review.Request) (jsonPatch, error) {
	policies, err := h.inForce()
	if err != nil || req.Operation != admissionv1.Create {
		return nil, err
	}
	marked, err := markOf(req.New, h.template)
	if err != nil || policies.Placement.Len() == 0 && !h.someWindows(policies, v1alpha1.TaintTargetDevice) && !marked.there {
		return nil, err
	}
	claim, err := decodePlacedClaim(req.New, h.template)
	if err != nil {
		return nil, err
	}
	additions := make([][]resourcev1.DeviceToleration, len(claim.requests))
	if policies.Placement.Len() > 0 {
		matching, err := h.placementOfClaim(ctx, policies.Placement, req, claim)
		if err != nil {
			return nil, err
		}
		additions = matching.GiveClaim(claim.claimRequests())
	}
	windows, err := h.addWindows(ctx, policies, req, claim, &marked, additions)
	if err != nil {
		return nil, err
	}
	out := claimPatch(claim.requests, additions)
	marked.patch(&out, windows)
	return out, nil
}

// addWindows adds the tolerations of windows to the additions to each request, and returns the
// windows that the claim has then. A claim that Kubernetes makes from a template has those that
// the template got when it was created, whatever the policies are now.
func (h *claimHandler) addWindows(ctx context.Context, policies *policyset.Set, req *review.Request, claim *placedClaim, m *mark, additions [][]resourcev1.DeviceToleration) ([]v1alpha1.WindowToleration, error) {
	wanted, err := h.windowsOf(ctx, policies, req, v1alpha1.TaintTargetDevice, nil)
	if err != nil {
		return nil, err
	}
	marked := v1alpha1.ParseWindow(m.value)
	consumer, err := h.consumer(req)
	if err != nil {
		return nil, err
	}
	var windows []v1alpha1.WindowToleration
	for i := range claim.requests {
		own := claim.requests[i].Tolerations
		have := slices.Concat(own, additions[i])
		added, has := requestWindows.add(have, wanted, marked)
		additions[i] = append(additions[i], added...)
		windows = append(windows, has...)
		if consumer == nil {
			continue
		}
		for _, w := range marked {
			if requestWindows.has(own, w) {
				windows = append(windows, w)
			}
		}
	}
	return windows, nil
}

// judge judges a claim, or a template of claims. An update of a spec, which is immutable, brings nothing new.
func (h *claimHandler) judge(ctx context.Context, req *review.Request, policies *policyset.Set) ([]policy.Finding, []string, error) {
	current, old, err := decodeBoth(req, h.requests)
	if err != nil {
		return nil, nil, err
	}
	consumer, err := h.consumer(req)
	if err != nil {
		return nil, nil, err
	}
	documented, warnings := h.documented(current, old, consumer != nil)
	found, err := h.byPolicies(ctx, policies, req, current, old, consumer)
	return append(documented, found...), warnings, err
}

// documented holds the tolerations to the rules of Kubernetes, and to those that it has in
// its documentation alone. The latter only warn of a claim that is made from a template: the
// template was judged itself, unless it was stored without a review, and then it is immutable
// and was legal, and to refuse its claims would keep its pods from starting.
func (h *claimHandler) documented(current, old []requestFields, made bool) ([]policy.Finding, []string) {
	if !h.DeviceTaintAdmission {
		return nil, nil
	}
	now, before := requestTolerations(current), requestTolerations(old)
	errs, documented := validation.ValidateTolerations(now, before, h.path())
	stricter := findings(documented)
	if made {
		for i := range stricter {
			stricter[i].Actions = []v1alpha1.ValidationAction{v1alpha1.Warn}
			stricter[i].Remedy = "the claim is let in because its template was stored before this was checked"
		}
	}
	return append(findings(errs), stricter...), validation.TolerationWarnings(now, before, h.path())
}

// consumer returns the pod, or group of pods, that Kubernetes makes the claim of a request
// for, from a template; nil where Kubernetes did not make it. Users cannot say so of
// themselves.
func (h *claimHandler) consumer(req *review.Request) (*metav1.OwnerReference, error) {
	if h.template || !slices.Contains(resourceClaimControllers, req.UserInfo.Username) {
		return nil, nil
	}
	owner, err := decodeOwner(req.New)
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
func (h *claimHandler) path() *field.Path {
	path := field.NewPath("spec")
	if h.template {
		path = path.Child("spec")
	}
	return path.Child("devices", "requests")
}

// requests returns the device requests of a claim, or of the claim in a template.
func (h *claimHandler) requests(v review.Value) ([]requestFields, error) {
	var f review.Fields
	if h.template {
		v = f.At(v, "spec")
	}
	requests := readRequests(&f, v)
	return requests, f.Err()
}

// readRequests returns the device requests of a claim.
func readRequests(f *review.Fields, claim review.Value) (requests []requestFields) {
	f.IntoWithin(maxRequestElements, &requests, claim, "spec", "devices", "requests")
	return requests
}

// exactly returns the one alternative of a request; the zero value where there are several.
func (r *requestFields) exactly() subrequestFields {
	if r.Exactly == nil {
		return subrequestFields{}
	}
	return *r.Exactly
}

func requestTolerations(fields []requestFields) []validation.Request {
	requests := make([]validation.Request, len(fields))
	for i := range fields {
		requests[i].Exactly = fields[i].exactly().Tolerations
		for _, alternative := range fields[i].FirstAvailable {
			requests[i].FirstAvailable = append(requests[i].FirstAvailable, alternative.Tolerations)
		}
	}
	return requests
}

// byPolicies returns the violations of policies by the claim. A claim that Kubernetes makes
// from a template, for a consumer, has the tolerations of the template, which was judged when a
// user wrote it.
func (h *claimHandler) byPolicies(ctx context.Context, policies *policyset.Set, req *review.Request, current, old []requestFields, consumer *metav1.OwnerReference) ([]policy.Finding, error) {
	var found []policy.Finding
	created := req.Operation == admissionv1.Create
	if created {
		var err error
		if found, err = h.misplacedClaim(ctx, policies, req, h.template); err != nil {
			return nil, err
		}
	}
	subject, err := h.claim(req.New)
	if err != nil {
		return nil, err
	}
	var windows []v1alpha1.WindowToleration
	var marked []policy.Finding
	switch {
	case created:
		windows, marked, err = h.windowsOfCreated(ctx, policies, req, v1alpha1.TaintTargetDevice, h.template)
		if consumer != nil {
			marked = nil // The mark is that of the template, which was judged by the policies of then.
		}
	case !h.template:
		marked, err = markChanged(req)
	}
	if err != nil {
		return nil, err
	}
	found = append(found, marked...)
	judged := &tolerationReview{
		reviewer: h.reviewer, set: policies.Tolerations, req: req, subject: subject,
		in: toleration.Input{Claim: objectOf(subject), AddedDevices: requestWindows.all(windows)},
	}
	violations, err := judged.judge(ctx, h.tolerations(current, old)...)
	if err != nil || len(violations) == 0 || consumer == nil {
		return append(found, violations...), err
	}
	if old, err = h.templateOf(ctx, req, consumer); err != nil {
		return nil, err
	}
	violations, err = judged.judge(ctx, h.tolerations(current, old)...)
	return append(found, violations...), err
}

// claim returns the claim, or the one in the template, with metadata and spec.
func (h *claimHandler) claim(v review.Value) (review.Value, error) {
	var f review.Fields
	if h.template {
		v = f.At(v, "spec")
	}
	return v, f.Err()
}

// tolerations lists the tolerations of each request, beside those that it had before. A
// toleration is granted for a class of devices, so those for another class do not count.
func (h *claimHandler) tolerations(current, old []requestFields) []toleration.Asked {
	var list []toleration.Asked
	add := func(path *field.Path, now, before subrequestFields) {
		if len(now.Tolerations) == 0 {
			return
		}
		if now.Class != before.Class {
			before.Tolerations = nil
		}
		list = append(list, toleration.Asked{
			Path: path.Child("tolerations"), Class: now.Class, Devices: now.Tolerations, OldDevices: before.Tolerations,
		})
	}
	for i := range current {
		var before requestFields
		if i < len(old) {
			before = old[i]
		}
		path := h.path().Index(i)
		add(path.Child("exactly"), current[i].exactly(), before.exactly())
		for k, now := range current[i].FirstAvailable {
			var same subrequestFields
			if k < len(before.FirstAvailable) {
				same = before.FirstAvailable[k]
			}
			add(path.Child("firstAvailable").Index(k), now, same)
		}
	}
	return list
}

// templateOf returns the requests of the ResourceClaimTemplate from which Kubernetes creates
// a claim. An annotation of the claim names an entry in its owner, and that entry names the
// template. The owner is read from the API server and must have the UID of the reference. If
// any of these is missing, templateOf returns no requests.
func (h *claimHandler) templateOf(ctx context.Context, req *review.Request, owner *metav1.OwnerReference) ([]requestFields, error) {
	name, err := annotation(req.New, resourcev1.PodResourceClaimAnnotation)
	if err != nil {
		return nil, err
	}
	var template string
	if isPod(owner) {
		pod, err := h.live.pod(ctx, req.Namespace, owner.Name)
		if err != nil || pod == nil || pod.UID != owner.UID {
			return nil, err
		}
		for i := range pod.Spec.ResourceClaims {
			if c := &pod.Spec.ResourceClaims[i]; c.Name == name && c.ResourceClaimTemplateName != nil {
				template = *c.ResourceClaimTemplateName
				break
			}
		}
	} else {
		templates, err := h.live.podGroupTemplates(ctx, req.Namespace, owner.APIVersion, owner.Name, owner.UID)
		if err != nil {
			return nil, err
		}
		template = templates[name]
	}
	if template == "" {
		return nil, nil
	}
	requests, err := h.live.claimTemplate(ctx, req.Namespace, template)
	fields := make([]requestFields, len(requests))
	for i := range requests {
		if exactly := requests[i].Exactly; exactly != nil {
			fields[i].Exactly = &subrequestFields{Class: exactly.DeviceClassName, Tolerations: exactly.Tolerations}
		}
		for k := range requests[i].FirstAvailable {
			sub := &requests[i].FirstAvailable[k]
			fields[i].FirstAvailable = append(fields[i].FirstAvailable, subrequestFields{Class: sub.DeviceClassName, Tolerations: sub.Tolerations})
		}
	}
	return fields, err
}

// annotation returns the value of an annotation of an object; empty for none.
func annotation(v review.Value, key string) (string, error) {
	var f review.Fields
	text := f.Text(v, "metadata", "annotations", key)
	return text, f.Err()
}
