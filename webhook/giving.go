package webhook

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// podGiver gives pods what PlacementPolicies have for them, and in mode Window what
// EvictionPolicies have. It never refuses.
type podGiver struct {
	policies policySource
	placer   *placer
	windows  *windows
}

// Judge implements judge. Only what is created is given anything, and mirrors of
// static pods, which run as their kubelet has them, are not.
func (j *podGiver) Judge(ctx context.Context, req admission.Request) (admission.Response, error) {
	policies, err := giving(j.policies)
	if err != nil || req.Operation != admissionv1.Create {
		return allowed(), err
	}
	if policies.Placement.Len() == 0 && !j.windows.some(policies, v1alpha1.TaintTargetNode) && !mayBeMarked(req.Object.Raw) {
		return allowed(), nil
	}
	return j.give(ctx, policies, req)
}

// give is apart from Judge so that a request is copied only where it is looked at.
func (j *podGiver) give(ctx context.Context, policies *policyset.Set, req admission.Request) (admission.Response, error) {
	pod, err := decodePlacedPod(req.Object.Raw)
	if err != nil {
		return admission.Response{}, err
	}
	response := allowed()
	if isMirror(req, &pod.pod) {
		return response, nil
	}
	var additions placement.PodAdditions
	if policies.Placement.Len() > 0 {
		matching, err := j.placer.ofPod(ctx, policies.Placement, &req, pod)
		if err != nil {
			return admission.Response{}, err
		}
		additions = matching.GivePod(pod.placement(&req))
	}
	given, err := j.window(ctx, policies, &req, pod, &additions)
	if err != nil {
		return admission.Response{}, err
	}
	response.Patches = podPatch(pod, &additions, given)
	return response, nil
}

// window adds the tolerations of windows to the additions, behind all others, and
// returns which the pod has then.
func (j *podGiver) window(ctx context.Context, policies *policyset.Set, req *admission.Request, pod *placedPod, additions *placement.PodAdditions) ([]v1alpha1.WindowToleration, error) {
	wanted, err := j.windows.of(ctx, policies, req, v1alpha1.TaintTargetNode, pod.pod.Labels)
	if err != nil {
		return nil, err
	}
	have := slices.Concat(pod.pod.Spec.Tolerations, additions.Tolerations)
	added, given := giveWindows(have, wanted, v1alpha1.ParseWindow(pod.mark.value))
	additions.Tolerations = append(additions.Tolerations, added...)
	return given, nil
}

// claimGiver gives claims, or the claims of templates, what PlacementPolicies have for
// them, and in mode Window what EvictionPolicies have. It never refuses.
type claimGiver struct {
	policies policySource
	placer   *placer
	windows  *windows
	// template says that there is a claim inside of the object.
	template bool
}

// Judge implements judge. The spec of a claim is immutable, so it is given something
// when it is created or never.
func (j *claimGiver) Judge(ctx context.Context, req admission.Request) (admission.Response, error) {
	policies, err := giving(j.policies)
	if err != nil || req.Operation != admissionv1.Create {
		return allowed(), err
	}
	if policies.Placement.Len() == 0 && !j.windows.some(policies, v1alpha1.TaintTargetDevice) && !mayBeMarked(req.Object.Raw) {
		return allowed(), nil
	}
	return j.give(ctx, policies, req)
}

func (j *claimGiver) give(ctx context.Context, policies *policyset.Set, req admission.Request) (admission.Response, error) {
	claim, err := decodePlacedClaim(req.Object.Raw, j.template)
	if err != nil {
		return admission.Response{}, err
	}
	additions := make([][]resourcev1.DeviceToleration, len(claim.requests))
	if policies.Placement.Len() > 0 {
		matching, err := j.placer.ofClaim(ctx, policies.Placement, &req, claim)
		if err != nil {
			return admission.Response{}, err
		}
		additions = matching.GiveClaim(claim.claimRequests())
	}
	given, err := j.window(ctx, policies, &req, claim, additions)
	if err != nil {
		return admission.Response{}, err
	}
	out := patch(claimPatch(claim.requests, additions))
	claim.mark.patch(&out, given)
	response := allowed()
	response.Patches = out
	return response, nil
}

// window adds the tolerations of windows to the additions to each request, and returns
// which the claim has then. What Kubernetes makes from a template has those that the
// template was given when it was created, whatever the policies are now.
func (j *claimGiver) window(ctx context.Context, policies *policyset.Set, req *admission.Request, claim *placedClaim, additions [][]resourcev1.DeviceToleration) ([]v1alpha1.WindowToleration, error) {
	wanted, err := j.windows.of(ctx, policies, req, v1alpha1.TaintTargetDevice, nil)
	if err != nil {
		return nil, err
	}
	marked := v1alpha1.ParseWindow(claim.mark.value)
	var kept []v1alpha1.WindowToleration
	if !j.template {
		made, err := fromTemplate(req)
		if err != nil {
			return nil, err
		}
		if made != nil {
			kept = marked
		}
	}
	var given []v1alpha1.WindowToleration
	for i := range claim.requests {
		own := claim.requests[i].Tolerations
		have := slices.Concat(own, additions[i])
		added, has := giveWindowsToRequest(have, wanted, marked)
		additions[i] = append(additions[i], added...)
		given = append(given, has...)
		given = append(given, standing(own, kept)...)
	}
	return given, nil
}

// giving returns the policies in force. They are read at the start; to give nothing
// until then would be to decide.
func giving(source policySource) (*policyset.Set, error) {
	policies := source.Current()
	if policies == nil {
		return nil, errNoPolicies
	}
	return policies, nil
}
