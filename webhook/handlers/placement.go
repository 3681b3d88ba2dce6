package handlers

import (
	"context"
	"fmt"
	"slices"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// placementSubject returns the subject that PlacementPolicies match, of an object with labels that
// is created. They are matched twice: to add what they ask for, and to find what is missing in the
// object that is about to be stored.
func (r *reviewer) placementSubject(ctx context.Context, req *review.Request, labels map[string]string) (*placement.Subject, error) {
	namespace, err := r.Namespaces.Namespace(ctx, req.Namespace)
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", req.Namespace, err)
	}
	subject := &placement.Subject{
		Review:          &cel.Review{Request: &req.AdmissionRequest, Namespace: namespace, Authorizer: r.Authorizer, Turns: r.Turns},
		Namespace:       req.Namespace,
		NamespaceLabels: namespace.Labels,
		Labels:          labels,
	}
	if subject.NamespaceLabels == nil {
		subject.NamespaceLabels = map[string]string{} // known to have none
	}
	return subject, nil
}

// placementOfPod returns the policies that are for a pod.
func (r *reviewer) placementOfPod(ctx context.Context, set *placement.Set, req *review.Request, pod *podFields) (placement.Matching, error) {
	subject, err := r.placementSubject(ctx, req, pod.Labels)
	if err != nil {
		return placement.Matching{}, err
	}
	subject.Resources = pod.requested
	if r.DeviceClasses == nil {
		return set.MatchPod(ctx, subject)
	}
	subject.DeviceClasses = func(ctx context.Context) ([]string, error) {
		claims, err := pod.resourceClaims()
		if err != nil {
			return nil, err
		}
		resources, err := pod.requested()
		if err != nil {
			return nil, err
		}
		return r.DeviceClasses.OfPod(ctx, req.Namespace, claims, resources)
	}
	return set.MatchPod(ctx, subject)
}

// placementOfClaim returns the policies that are for a claim, or for the claims of a template.
func (r *reviewer) placementOfClaim(ctx context.Context, set *placement.Set, req *review.Request, claim *placedClaim) (placement.Matching, error) {
	subject, err := r.placementSubject(ctx, req, claim.labels)
	if err != nil {
		return placement.Matching{}, err
	}
	subject.DeviceClasses = func(context.Context) ([]string, error) { return claim.classes, nil }
	return set.MatchClaim(ctx, subject)
}

// misplacedPod returns the findings of PlacementPolicies about a pod that is created.
func (r *reviewer) misplacedPod(ctx context.Context, policies *policyset.Set, req *review.Request) ([]policy.Finding, error) {
	if policies.Placement.Len() == 0 {
		return nil, nil
	}
	pod, err := decodePlacedPod(req.New)
	if err != nil {
		return nil, err
	}
	matching, err := r.placementOfPod(ctx, policies.Placement, req, pod)
	if err != nil || matching.Empty() {
		return nil, err
	}
	return matching.JudgePod(pod.placement(req)), nil
}

// misplacedClaim returns the findings of PlacementPolicies about a claim, or a template of claims, that is created.
func (r *reviewer) misplacedClaim(ctx context.Context, policies *policyset.Set, req *review.Request, template bool) ([]policy.Finding, error) {
	if policies.Placement.Len() == 0 {
		return nil, nil
	}
	claim, err := decodePlacedClaim(req.New, template)
	if err != nil {
		return nil, err
	}
	matching, err := r.placementOfClaim(ctx, policies.Placement, req, claim)
	if err != nil || matching.Empty() {
		return nil, err
	}
	return matching.JudgeClaim(claim.claimRequests()), nil
}

// placement returns the pod as policies look at it.
func (p *podFields) placement(req *review.Request) placement.Pod {
	return placement.Pod{
		Spec:                    &p.Spec,
		FromDaemonSetController: slices.Contains(daemonSetControllers, req.UserInfo.Username),
	}
}
