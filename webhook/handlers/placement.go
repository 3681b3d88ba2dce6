package handlers

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// placementSubject returns the subject that PlacementPolicies match, of an object with labels that
// is created. They are matched twice: to add what they ask for, and to find what is missing in the
// object that is about to be stored.
func (r request) placementSubject(ctx context.Context, labels map[string]string) (*placement.Subject, error) {
	namespace, err := r.namespace(ctx)
	if err != nil {
		return nil, err
	}
	subject := &placement.Subject{
		Review:          &cel.Review{Request: &r.AdmissionRequest, Namespace: namespace, Authorizer: r.Authorizer, Turns: r.Turns},
		Namespace:       r.Namespace,
		NamespaceLabels: namespace.Labels,
		Labels:          labels,
	}
	if subject.NamespaceLabels == nil {
		subject.NamespaceLabels = map[string]string{} // known to have none
	}
	return subject, nil
}

// namespace returns the namespace of the request as it was known a moment ago.
func (r request) namespace(ctx context.Context) (*corev1.Namespace, error) {
	namespace, err := r.Namespaces.Namespace(ctx, r.Namespace)
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", r.Namespace, err)
	}
	return namespace, nil
}

// placementOfPod returns the policies that are for a pod.
func (r request) placementOfPod(ctx context.Context, pod *podFields) (placement.Matching, error) {
	set := r.policies.Placement
	if set.Len() == 0 {
		return placement.Matching{}, nil
	}
	subject, err := r.placementSubject(ctx, pod.Labels)
	if err != nil {
		return placement.Matching{}, err
	}
	subject.Resources = pod.requested
	subject.DeviceClasses = func(ctx context.Context) ([]string, error) {
		var f review.Fields
		var claims []corev1.PodResourceClaim
		f.Into(&claims, pod.spec, "resourceClaims")
		resources, err := pod.requested()
		if err := cmp.Or(f.Err(), err); err != nil {
			return nil, err
		}
		return r.DeviceClasses.OfPod(ctx, r.Namespace, claims, resources)
	}
	return set.MatchPod(ctx, subject)
}

// placementOfClaim returns the policies that are for a claim, or for the claims of a template.
func (r request) placementOfClaim(ctx context.Context, claim *placedClaim) (placement.Matching, error) {
	set := r.policies.Placement
	if set.Len() == 0 {
		return placement.Matching{}, nil
	}
	subject, err := r.placementSubject(ctx, claim.labels)
	if err != nil {
		return placement.Matching{}, err
	}
	subject.DeviceClasses = func(context.Context) ([]string, error) {
		classes := make([]string, len(claim.alternatives))
		for i, a := range claim.alternatives {
			classes[i] = a.class
		}
		return classes, nil
	}
	return set.MatchClaim(ctx, subject)
}

// misplacedPod returns the findings of PlacementPolicies about a pod that is created.
func (r request) misplacedPod(ctx context.Context) ([]policy.Finding, error) {
	if r.policies.Placement.Len() == 0 {
		return nil, nil
	}
	pod := readPlacedPod(&r.Fields, r.New)
	matching, err := r.placementOfPod(ctx, pod)
	if err != nil || matching.Empty() {
		return nil, err
	}
	return matching.JudgePod(r.placed(pod)), nil
}

// misplacedClaim returns the findings of PlacementPolicies about a claim, or a template of claims, that is created.
func (r request) misplacedClaim(ctx context.Context) ([]policy.Finding, error) {
	if r.policies.Placement.Len() == 0 {
		return nil, nil
	}
	claim := r.placedClaim()
	matching, err := r.placementOfClaim(ctx, claim)
	if err != nil || matching.Empty() {
		return nil, err
	}
	return matching.JudgeClaim(claim.requests), nil
}

// placed returns a pod as PlacementPolicies look at it.
func (r request) placed(pod *podFields) placement.Pod {
	return placement.Pod{Spec: &pod.Spec, FromDaemonSetController: r.fromDaemonSetController()}
}
