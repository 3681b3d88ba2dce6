package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Ruling is the verdict of a TolerationPolicy on a toleration of a pod.
type Ruling struct {
	Toleration string `json:"toleration"`
	Policy     string `json:"policy"`
	// Granted is the verdict without the user who created the pod: a rule about users counts as
	// granted.
	Granted bool   `json:"granted"`
	Allowed string `json:"allowed"`
	// Warns is true if the policy only warns.
	Warns bool `json:"warns,omitempty"`
}

// Placement has the values of PlacementPolicies.
type Placement struct {
	Gifts []placement.Gift `json:"gifts,omitempty"`
	// Unknown are policies that may match, by name, with the reason.
	Unknown map[string]string `json:"unknown,omitempty"`
}

// policiesOf evaluates the policies about a pod: TolerationPolicies as the audit does.
func (w *World) policiesOf(ctx context.Context, p *Pod, pod *corev1.Pod, kept *tracker.Pod) error {
	if w.Namespace == nil {
		return nil
	}
	var added []corev1.Toleration
	for _, t := range kept.Window.Tolerations() {
		added = append(added, t.OfPod())
	}
	rulings, err := w.Policies.Tolerations.Rulings(ctx, w.Namespace, toleration.Input{
		Labels: pod.Labels, ServiceAccount: pod.Spec.ServiceAccountName, Asked: []toleration.Asked{{New: pod.Spec.Tolerations}},
		FromDaemonSetController: p.ofDaemonSet(), HostNetwork: pod.Spec.HostNetwork, Added: added,
	})
	if err != nil {
		return fmt.Errorf("ask TolerationPolicies about pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	for _, r := range rulings {
		p.Tolerations = append(p.Tolerations, Ruling{
			Toleration: tolerationWords(pod.Spec.Tolerations[r.Index]), Policy: r.Policy, Granted: r.Granted, Allowed: r.Allowed, Warns: !r.Denies,
		})
	}
	containers := slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers)
	if pod.Spec.Resources != nil { // The pod itself requests as a container does.
		containers = append(containers, corev1.Container{Resources: *pod.Spec.Resources})
	}
	var resources []string
	for _, c := range containers {
		for name, quantity := range c.Resources.Requests {
			if !quantity.IsZero() {
				resources = append(resources, string(name))
			}
		}
	}
	p.Placement, err = w.placement(ctx, pod, p.Claims, resources, func(matching placement.Matching) []placement.Gift {
		return matching.Gifts(placement.Pod{Spec: &pod.Spec, FromDaemonSetController: p.ofDaemonSet()})
	})
	return err
}

// ofDaemonSet reports whether a DaemonSet controls the pod.
func (p *Pod) ofDaemonSet() bool { return strings.HasPrefix(p.Controller, "DaemonSet/") }

// placement matches PlacementPolicies with the creation of a pod or claim as it is now, by an
// unknown user, and returns what they give; nil for nothing. The object has claims, or is one, and
// requests resources.
func (w *World) placement(
	ctx context.Context, object client.Object, claims []Claim, resources []string, gifts func(placement.Matching) []placement.Gift,
) (*Placement, error) {
	policies, kind, group, name, plural := w.Policies.Placement, kindPod, corev1.SchemeGroupVersion, "Pod", "pods"
	match, personal := policies.MatchPod, policies.PersonalPods
	if _, isClaim := object.(*resourcev1.ResourceClaim); isClaim {
		kind, group, name, plural = kindClaim, resourcev1.SchemeGroupVersion, "ResourceClaim", "resourceclaims"
		match, personal = policies.MatchClaim, policies.PersonalClaims
	}
	version, served := metav1.GroupVersionKind(group.WithKind(name)), metav1.GroupVersionResource(group.WithResource(plural))
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	var classes []string
	for _, claim := range claims {
		for _, r := range claim.Requests {
			classes = append(classes, r.Class)
		}
	}
	subject := &placement.Subject{
		Review: &cel.Review{
			Namespace: w.Namespace,
			Request: &admissionv1.AdmissionRequest{
				Namespace: w.Namespace.Name, Operation: admissionv1.Create,
				Kind: version, RequestKind: &version, Resource: served, RequestResource: &served,
				Object: runtime.RawExtension{Raw: raw},
			},
		},
		Namespace: object.GetNamespace(), Labels: object.GetLabels(),
		NamespaceLabels: labels.Merge(nil, w.Namespace.Labels), // Those that are known are not nil.
		Resources:       func() ([]string, error) { return resources, nil },
		DeviceClasses:   func(context.Context) ([]string, error) { return classes, nil },
	}
	matching, err := match(ctx, subject)
	names, unknown := personal(ctx, subject)
	if err = cmp.Or(err, unknown); err != nil {
		return nil, fmt.Errorf("match PlacementPolicies with %s %s/%s: %w", kind, object.GetNamespace(), object.GetName(), err)
	}
	found := &Placement{Unknown: matching.Failed()}
	for _, name := range names {
		found.Unknown[name] = "a matchCondition asks who made the " + kind + ", which nothing tells any more"
	}
	for _, gift := range gifts(matching) {
		gift.Policies = slices.DeleteFunc(slices.Clone(gift.Policies), func(name string) bool { _, is := found.Unknown[name]; return is })
		if len(gift.Policies) > 0 {
			found.Gifts = append(found.Gifts, gift)
		}
	}
	if len(found.Gifts)+len(found.Unknown) == 0 {
		found = nil
	}
	return found, nil
}
