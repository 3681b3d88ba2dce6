package handlers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// namespaceObjects reads namespaces.
type namespaceObjects interface {
	Namespace(ctx context.Context, name string) (*corev1.Namespace, error)
}

// placementMatcher finds the PlacementPolicies for a pod or a claim that is created. It is
// used twice: to add what they ask for, and to find what is missing in the object that is
// about to be stored.
type placementMatcher struct {
	namespaces namespaceObjects
	// classes is nil where devices are not known: then no pod uses a class.
	classes    deviceClasses
	authorizer authorizer.Authorizer
	turns      *cel.Turns
}

// subject returns the subject that policies match, of an object with labels.
func (p *placementMatcher) subject(ctx context.Context, req *review.Request, labels map[string]string) (*placement.Subject, error) {
	namespace, err := p.namespaces.Namespace(ctx, req.Namespace)
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", req.Namespace, err)
	}
	subject := &placement.Subject{
		Review:          &cel.Review{Request: &req.AdmissionRequest, Namespace: namespace, Authorizer: p.authorizer, Turns: p.turns},
		Namespace:       req.Namespace,
		NamespaceLabels: namespace.Labels,
		Labels:          labels,
	}
	if subject.NamespaceLabels == nil {
		subject.NamespaceLabels = map[string]string{} // known to have none
	}
	return subject, nil
}

// ofPod returns the policies that are for a pod.
func (p *placementMatcher) ofPod(ctx context.Context, set *placement.Set, req *review.Request, pod *podFields) (placement.Matching, error) {
	subject, err := p.subject(ctx, req, pod.Labels)
	if err != nil {
		return placement.Matching{}, err
	}
	subject.Resources = pod.requested
	if p.classes == nil {
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
		return p.classes.OfPod(ctx, req.Namespace, claims, resources)
	}
	return set.MatchPod(ctx, subject)
}

// ofClaim returns the policies that are for a claim, or for the claims of a template.
func (p *placementMatcher) ofClaim(ctx context.Context, set *placement.Set, req *review.Request, claim *placedClaim) (placement.Matching, error) {
	subject, err := p.subject(ctx, req, claim.labels)
	if err != nil {
		return placement.Matching{}, err
	}
	subject.DeviceClasses = func(context.Context) ([]string, error) { return claim.classes, nil }
	return set.MatchClaim(ctx, subject)
}

// podFindings returns the findings about a pod that is created.
func (p *placementMatcher) podFindings(ctx context.Context, policies *policyset.Set, req *review.Request) ([]policy.Finding, error) {
	if policies.Placement.Len() == 0 {
		return nil, nil
	}
	pod, err := decodePlacedPod(req.New)
	if err != nil {
		return nil, err
	}
	matching, err := p.ofPod(ctx, policies.Placement, req, pod)
	if err != nil || matching.Empty() {
		return nil, err
	}
	return matching.JudgePod(pod.placement(req)), nil
}

// claimFindings returns the findings about a claim, or a template of claims, that is created.
func (p *placementMatcher) claimFindings(ctx context.Context, policies *policyset.Set, req *review.Request, template bool) ([]policy.Finding, error) {
	if policies.Placement.Len() == 0 {
		return nil, nil
	}
	claim, err := decodePlacedClaim(req.New, template)
	if err != nil {
		return nil, err
	}
	matching, err := p.ofClaim(ctx, policies.Placement, req, claim)
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
