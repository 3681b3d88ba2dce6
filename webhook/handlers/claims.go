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
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/policy/validation"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// resourceClaimControllers are the identities under which Kubernetes makes claims
// from templates.
var resourceClaimControllers = []string{
	"system:serviceaccount:kube-system:resource-claim-controller",
	"system:kube-controller-manager",
}

// mutateClaim adds to claims, or to the claims of templates, the tolerations of PlacementPolicies,
// and in mode Window those of EvictionPolicies. The spec of a claim is immutable, so they are
// added when it is created or never.
func (r request) mutateClaim(ctx context.Context) (jsonPatch, error) {
	if err := r.inForce(); err != nil || r.Operation != admissionv1.Create {
		return nil, err
	}
	marked := r.markOf(r.New)
	if r.policies.Placement.Len() == 0 && !r.someWindows(v1alpha1.TaintTargetDevice) && !marked.there {
		return nil, nil
	}
	claim := r.placedClaim()
	matching, err := r.placementOfClaim(ctx, claim)
	if err != nil {
		return nil, err
	}
	additions := matching.GiveClaim(claim.requests)
	windows, err := r.addWindows(ctx, claim, &marked, additions)
	if err != nil {
		return nil, err
	}
	out := claimPatch(claim.alternatives, additions)
	marked.patch(&out, windows)
	return out, nil
}

// addWindows adds the tolerations of windows to the additions to each request, and returns the
// windows that the claim has then. A claim that Kubernetes makes from a template has those that
// the template got when it was created, whatever the policies are now.
func (r request) addWindows(ctx context.Context, claim *placedClaim, m *mark, additions [][]resourcev1.DeviceToleration) ([]v1alpha1.WindowToleration, error) {
	wanted, err := r.windowsOf(ctx, v1alpha1.TaintTargetDevice, nil)
	if err != nil {
		return nil, err
	}
	marked, consumer := v1alpha1.ParseWindow(m.value), r.claimConsumer()
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

// judgeClaim judges a claim, or a template of claims. An update of a spec, which is immutable,
// brings nothing new. The consumer of a claim makes no difference: a pod, a group of pods, or a pod
// that asks for an extended resource (C27); and admin access exempts from nothing.
func (r request) judgeClaim(ctx context.Context) ([]policy.Finding, []string, error) {
	current, old := readBoth(r, func(f *review.Fields, v review.Value) []resourcev1.DeviceRequest { return readRequests(f, r.claim(v)) })
	consumer := r.claimConsumer()
	documented, warnings := r.documented(current, old, consumer != nil)
	found, err := r.claimFindings(ctx, current, old, consumer)
	return append(documented, found...), warnings, err
}

// documented holds the tolerations to the rules of Kubernetes, and to those that it has in
// its documentation alone. The latter only warn of a claim that is made from a template: the
// template was judged itself, unless it was stored without a review, and then it is immutable
// and was legal, and to refuse its claims would keep its pods from starting.
func (r request) documented(current, old []resourcev1.DeviceRequest, made bool) ([]policy.Finding, []string) {
	if !r.DeviceTaintAdmission {
		return nil, nil
	}
	errs, documented := validation.ValidateTolerations(current, old, r.requestsPath())
	stricter := findings(documented)
	if made {
		for i := range stricter {
			stricter[i].Actions = []v1alpha1.ValidationAction{v1alpha1.Warn}
			stricter[i].Remedy = "the claim is let in because its template was stored before this was checked"
		}
	}
	return append(findings(errs), stricter...), validation.TolerationWarnings(current, old, r.requestsPath())
}

// claimConsumer returns the pod, or group of pods, that Kubernetes makes the claim of a request
// for, from a template; nil where Kubernetes did not make it. Users cannot say so of
// themselves.
func (r request) claimConsumer() *metav1.OwnerReference {
	if r.ofTemplate() || !slices.Contains(resourceClaimControllers, r.UserInfo.Username) {
		return nil
	}
	owner := readOwner(&r.Fields, r.New)
	if owner == nil || !isPod(owner) && !isPodGroup(owner) {
		return nil
	}
	return owner
}

func isPod(owner *metav1.OwnerReference) bool {
	return owner.Kind == "Pod" && owner.APIVersion == corev1.SchemeGroupVersion.String()
}

// isPodGroup looks at the group alone: its API has several versions (VS-08).
func isPodGroup(owner *metav1.OwnerReference) bool {
	group, _, _ := strings.Cut(owner.APIVersion, "/")
	return owner.Kind == "PodGroup" && group == "scheduling.k8s.io"
}

// ofTemplate reports whether the request is about a template of claims: there is a claim inside of
// the object then.
func (r request) ofTemplate() bool { return r.Resource.Resource == claimTemplates.Name }

// claim returns an object of the request, or the claim in it, with metadata and spec.
func (r request) claim(v review.Value) review.Value {
	if r.ofTemplate() {
		return r.At(v, "spec")
	}
	return v
}

// requestsPath returns where the device requests stand.
func (r request) requestsPath() *field.Path {
	path := field.NewPath("spec")
	if r.ofTemplate() {
		path = path.Child("spec")
	}
	return path.Child("devices", "requests")
}

// claimFindings returns the violations of policies by the claim. A claim that Kubernetes makes
// from a template, for a consumer, has the tolerations of the template, which was judged when a
// user wrote it.
func (r request) claimFindings(ctx context.Context, current, old []resourcev1.DeviceRequest, consumer *metav1.OwnerReference) ([]policy.Finding, error) {
	var found, marked []policy.Finding
	var windows []v1alpha1.WindowToleration
	switch {
	case r.Operation == admissionv1.Create:
		var err error
		if found, err = r.misplacedClaim(ctx); err != nil {
			return nil, err
		}
		if windows, marked, err = r.windowsOfCreated(ctx, v1alpha1.TaintTargetDevice); err != nil {
			return nil, err
		}
		if consumer != nil {
			marked = nil // The mark is that of the template, which was judged by the policies of then.
		}
	case !r.ofTemplate():
		marked = r.markChanged()
	}
	found = append(found, marked...)
	subject := r.claim(r.New)
	judged := &tolerationReview{request: r, subject: subject, in: toleration.Input{
		Claim: objectOf(subject), OfDevices: true, Added: podWindows.all(windows),
	}}
	violations, err := judged.judge(ctx, r.claimTolerations(current, old)...)
	if err != nil || len(violations) == 0 || consumer == nil {
		return append(found, violations...), err
	}
	if old, err = r.templateOf(ctx, consumer); err != nil {
		return nil, err
	}
	violations, err = judged.judge(ctx, r.claimTolerations(current, old)...)
	return append(found, violations...), err
}

// claimTolerations lists the tolerations of each alternative, beside those that it had before. A
// toleration is granted for a class of devices, so those for another class do not count.
func (r request) claimTolerations(current, old []resourcev1.DeviceRequest) []toleration.Asked {
	path, before := r.requestsPath(), map[string]alternative{}
	for _, a := range alternatives(old, path) {
		before[a.path.String()] = a
	}
	var list []toleration.Asked
	for _, a := range alternatives(current, path) {
		if len(a.tolerations) == 0 {
			continue
		}
		asked := toleration.Asked{Path: a.path.Child("tolerations"), Class: a.class, New: selector.FromDevices(a.tolerations)}
		if had := before[a.path.String()]; had.class == a.class {
			asked.Old = selector.FromDevices(had.tolerations)
		}
		list = append(list, asked)
	}
	return list
}

// templateOf returns the requests of the ResourceClaimTemplate from which Kubernetes creates
// a claim. An annotation of the claim names an entry in its owner, and that entry names the
// template. The owner is read from the API server and must have the UID of the reference. If
// any of these is missing, templateOf returns no requests.
func (r request) templateOf(ctx context.Context, owner *metav1.OwnerReference) ([]resourcev1.DeviceRequest, error) {
	claims, err := r.claimed.claimsOf(ctx, r.Namespace, owner)
	if err != nil {
		return nil, err
	}
	name := annotation(&r.Fields, r.New, resourcev1.PodResourceClaimAnnotation)
	var template resourcev1.ResourceClaimTemplate
	for _, claim := range claims {
		if source := ptr.Deref(claim.ResourceClaimTemplateName, ""); claim.Name == name && source != "" {
			_, err = r.claimed.read(ctx, r.Namespace, source, &template)
			break
		}
	}
	return template.Spec.Spec.Devices.Requests, err
}

// annotation returns the value of an annotation of an object; empty for none.
func annotation(f *review.Fields, v review.Value, key string) string {
	return f.Text(v, "metadata", "annotations", key)
}
