package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Ruling is what a TolerationPolicy says to a toleration of a pod.
type Ruling struct {
	Toleration string `json:"toleration"`
	Policy     string `json:"policy"`
	// Granted is what is known without whoever made the pod: what depends on that counts as
	// granted.
	Granted bool   `json:"granted"`
	Allowed string `json:"allowed"`
	// Warns is true when the policy does not refuse what it does not grant.
	Warns bool `json:"warns,omitempty"`
}

// Placement is what PlacementPolicies give.
type Placement struct {
	Gifts []Gift `json:"gifts,omitempty"`
	// Unknown says of policies, by name, why it cannot be told whether they match.
	Unknown map[string]string `json:"unknown,omitempty"`
}

// Gift is a value that policies give.
type Gift struct {
	Policies []string `json:"policies"`
	Field    string   `json:"field"`
	Value    string   `json:"value"`
	// Has is true when the object has it. It may have been written by whoever made it.
	Has bool `json:"has"`
}

// policiesOf finds out what policies say about a pod.
func (w *World) policiesOf(ctx context.Context, p *Pod, pod *corev1.Pod) error {
	if w.Namespace == nil {
		return nil
	}
	if err := w.rulings(ctx, p, pod); err != nil {
		return err
	}
	review, err := w.creation(pod, "Pod", "pods")
	if err != nil {
		return err
	}
	subject := &placement.Subject{
		Review: review, Namespace: pod.Namespace, NamespaceLabels: labelled(w.Namespace), Labels: pod.Labels,
		Resources:     func() ([]string, error) { return requested(pod), nil },
		DeviceClasses: func(context.Context) ([]string, error) { return w.classes(pod), nil },
	}
	matching, err := w.Policies.Placement.MatchPod(ctx, subject)
	if err != nil {
		return fmt.Errorf("match PlacementPolicies with pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	personal, err := w.Policies.Placement.PersonalPods(ctx, subject)
	if err != nil {
		return fmt.Errorf("match PlacementPolicies with pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	gifts := matching.Gifts(placement.Pod{Spec: &pod.Spec, FromDaemonSetController: ofDaemonSet(pod)})
	p.Placement = placementOf(gifts, unknownOf(matching, personal, "pod"))
	return nil
}

// unknownOf says of policies, by name, why it cannot be told whether they match an object.
func unknownOf(matching placement.Matching, personal []string, object string) map[string]string {
	unknown := matching.Failed()
	for _, name := range personal {
		unknown[name] = "a matchCondition asks who made the " + object + ", which nothing tells any more"
	}
	return unknown
}

// placementOf returns what policies give, apart from those of which nothing can be told.
func placementOf(gifts []placement.Gift, unknown map[string]string) *Placement {
	found := &Placement{}
	for i := range gifts {
		gift := Gift(gifts[i])
		gift.Policies = slices.DeleteFunc(slices.Clone(gift.Policies), func(name string) bool { _, is := unknown[name]; return is })
		if len(gift.Policies) > 0 {
			found.Gifts = append(found.Gifts, gift)
		}
	}
	if len(unknown) > 0 {
		found.Unknown = unknown
	}
	if len(found.Gifts)+len(unknown) == 0 {
		return nil
	}
	return found
}

// rulings asks the TolerationPolicies as the audit does.
func (w *World) rulings(ctx context.Context, p *Pod, pod *corev1.Pod) error {
	kept := tracker.PodOf(pod)
	var given []corev1.Toleration
	for _, t := range kept.Window.Tolerations() {
		given = append(given, corev1.Toleration{
			Key: t.Key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(t.Seconds),
		})
	}
	rulings, err := w.Policies.Tolerations.Rulings(ctx, toleration.AuditInput{
		Namespace: w.Namespace, Labels: pod.Labels, ServiceAccount: pod.Spec.ServiceAccountName, Tolerations: pod.Spec.Tolerations,
		OfDaemonSet: ofDaemonSet(pod), HostNetwork: pod.Spec.HostNetwork, Added: given,
	})
	if err != nil {
		return fmt.Errorf("ask TolerationPolicies about pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	for _, r := range rulings {
		p.Tolerations = append(p.Tolerations, Ruling{
			Toleration: tolerationWords(&pod.Spec.Tolerations[r.Index]), Policy: r.Policy, Granted: r.Granted, Allowed: r.Allowed, Warns: !r.Denies,
		})
	}
	return nil
}

// creation returns a review of the creation of an object as it is now, without who made it.
func (w *World) creation(object runtime.Object, kind, resource string) (*cel.Review, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	version := metav1.GroupVersionKind{Version: "v1", Kind: kind}
	served := metav1.GroupVersionResource{Version: "v1", Resource: resource}
	if resource != "pods" {
		version.Group, served.Group = resourcev1.GroupName, resourcev1.GroupName
	}
	return &cel.Review{
		Namespace: w.Namespace,
		Request: &admissionv1.AdmissionRequest{
			Namespace: w.Namespace.Name, Operation: admissionv1.Create,
			Kind: version, RequestKind: &version, Resource: served, RequestResource: &served,
			Object: runtime.RawExtension{Raw: raw},
		},
	}, nil
}

func labelled(namespace *corev1.Namespace) map[string]string {
	if namespace.Labels == nil {
		return map[string]string{}
	}
	return namespace.Labels
}

func ofDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// requested returns the names of the resources that a pod requests.
func requested(pod *corev1.Pod) []string {
	names := map[string]struct{}{}
	collect := func(list corev1.ResourceList) {
		for name, quantity := range list {
			if !quantity.IsZero() {
				names[string(name)] = struct{}{}
			}
		}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			collect(containers[i].Resources.Requests)
		}
	}
	if pod.Spec.Resources != nil {
		collect(pod.Spec.Resources.Requests)
	}
	return slices.Sorted(maps.Keys(names))
}

// classes returns the DeviceClasses that the claims of a pod request.
func (w *World) classes(pod *corev1.Pod) []string {
	var names []string
	for _, ref := range tracker.PodOf(pod).Claims {
		if claim := w.claim(ref.Name); claim != nil {
			for _, request := range requestsOf(&claim.Spec) {
				names = append(names, request.Class)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// claimPlacement finds out what PlacementPolicies give to a claim.
func (w *World) claimPlacement(ctx context.Context, c *Claim, claim *resourcev1.ResourceClaim) error {
	if w.Namespace == nil {
		return nil
	}
	review, err := w.creation(claim, "ResourceClaim", "resourceclaims")
	if err != nil {
		return err
	}
	var classes []string
	var requests []placement.ClaimRequest
	path := field.NewPath("spec", "devices", "requests")
	for _, r := range c.Requests {
		classes = append(classes, r.Class)
		parent, sub, _ := strings.Cut(r.Name, "/")
		at := path.Key(parent)
		if sub != "" {
			at = at.Child("firstAvailable").Key(sub)
		}
		requests = append(requests, placement.ClaimRequest{Path: at.Child("tolerations"), Tolerations: r.tolerations})
	}
	subject := &placement.Subject{
		Review: review, Namespace: claim.Namespace, NamespaceLabels: labelled(w.Namespace), Labels: claim.Labels,
		DeviceClasses: func(context.Context) ([]string, error) { return classes, nil },
	}
	matching, err := w.Policies.Placement.MatchClaim(ctx, subject)
	if err != nil {
		return fmt.Errorf("match PlacementPolicies with claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	personal, err := w.Policies.Placement.PersonalClaims(ctx, subject)
	if err != nil {
		return fmt.Errorf("match PlacementPolicies with claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	c.Placement = placementOf(matching.ClaimGifts(requests), unknownOf(matching, personal, "claim"))
	return nil
}
