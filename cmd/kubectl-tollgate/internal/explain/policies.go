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

// policiesOf evaluates the policies about a pod.
func (w *World) policiesOf(ctx context.Context, p *Pod, pod *corev1.Pod) error {
	if w.Namespace == nil {
		return nil
	}
	if err := w.rulings(ctx, p, pod); err != nil {
		return err
	}
	policies := w.Policies.Placement
	return w.placement(ctx, &p.Placement, kindPod, pod, policies.MatchPod, policies.PersonalPods, &placement.Subject{
		Labels:        pod.Labels,
		Resources:     func() ([]string, error) { return requested(pod), nil },
		DeviceClasses: func(context.Context) ([]string, error) { return w.classes(pod), nil },
	}, func(matching placement.Matching) []placement.Gift {
		return matching.Gifts(placement.Pod{Spec: &pod.Spec, FromDaemonSetController: ofDaemonSet(pod)})
	})
}

// claimPlacement sets the values of PlacementPolicies for a claim.
func (w *World) claimPlacement(ctx context.Context, c *Claim, claim *resourcev1.ResourceClaim) error {
	if w.Namespace == nil {
		return nil
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
	policies := w.Policies.Placement
	return w.placement(ctx, &c.Placement, kindClaim, claim, policies.MatchClaim, policies.PersonalClaims, &placement.Subject{
		Labels: claim.Labels, DeviceClasses: func(context.Context) ([]string, error) { return classes, nil },
	}, func(matching placement.Matching) []placement.Gift { return matching.ClaimGifts(requests) })
}

// placement matches PlacementPolicies with the creation of a pod or claim as it is now, by an
// unknown user, and sets what they give, if anything. Personal returns the policies whose match
// depends on the user.
func (w *World) placement(
	ctx context.Context, to **Placement, kind string, object client.Object,
	match func(context.Context, *placement.Subject) (placement.Matching, error), personal func(context.Context, *placement.Subject) ([]string, error),
	subject *placement.Subject, gifts func(placement.Matching) []placement.Gift,
) error {
	group, name, plural := corev1.SchemeGroupVersion, "Pod", "pods"
	if kind == kindClaim {
		group, name, plural = resourcev1.SchemeGroupVersion, "ResourceClaim", "resourceclaims"
	}
	version, served := metav1.GroupVersionKind(group.WithKind(name)), metav1.GroupVersionResource(group.WithResource(plural))
	raw, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode %s: %w", version.Kind, err)
	}
	subject.Review = &cel.Review{
		Namespace: w.Namespace,
		Request: &admissionv1.AdmissionRequest{
			Namespace: w.Namespace.Name, Operation: admissionv1.Create,
			Kind: version, RequestKind: &version, Resource: served, RequestResource: &served,
			Object: runtime.RawExtension{Raw: raw},
		},
	}
	subject.Namespace, subject.NamespaceLabels = object.GetNamespace(), w.Namespace.Labels
	if subject.NamespaceLabels == nil {
		subject.NamespaceLabels = map[string]string{}
	}
	matching, err := match(ctx, subject)
	var names []string
	if err == nil {
		names, err = personal(ctx, subject)
	}
	if err != nil {
		return fmt.Errorf("match PlacementPolicies with %s %s/%s: %w", kind, object.GetNamespace(), object.GetName(), err)
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
	if len(found.Gifts)+len(found.Unknown) > 0 {
		*to = found
	}
	return nil
}

// rulings evaluates the TolerationPolicies as the audit does.
func (w *World) rulings(ctx context.Context, p *Pod, pod *corev1.Pod) error {
	kept := tracker.PodOf(pod)
	var added []corev1.Toleration
	for _, t := range kept.Window.Tolerations() {
		added = append(added, t.OfPod())
	}
	rulings, err := w.Policies.Tolerations.Rulings(ctx, w.Namespace, toleration.Input{
		Labels: pod.Labels, ServiceAccount: pod.Spec.ServiceAccountName, Asked: []toleration.Asked{{New: pod.Spec.Tolerations}},
		FromDaemonSetController: ofDaemonSet(pod), HostNetwork: pod.Spec.HostNetwork, Added: added,
	})
	if err != nil {
		return fmt.Errorf("ask TolerationPolicies about pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	for _, r := range rulings {
		p.Tolerations = append(p.Tolerations, Ruling{
			Toleration: tolerationWords(pod.Spec.Tolerations[r.Index]), Policy: r.Policy, Granted: r.Granted, Allowed: r.Allowed, Warns: !r.Denies,
		})
	}
	return nil
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
		for _, c := range containers {
			collect(c.Resources.Requests)
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
		if claim := named(w.Claims, ref.Name); claim != nil {
			for _, request := range requestsOf(&claim.Spec) {
				names = append(names, request.Class)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
