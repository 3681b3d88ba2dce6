package toleration

import (
	"context"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy/cel"
)

// AuditInput is the part of existing pods, or claims, that is judged. Those with the same
// input get the same answer.
type AuditInput struct {
	Namespace *corev1.Namespace
	// Labels of the pods; they matter where AuditNeedsLabels says so.
	Labels         map[string]string
	ServiceAccount string
	Tolerations    []corev1.Toleration
	// Requests are those of a claim, with the tolerations of each. Pods have none.
	Requests []Asked

	// DefaultSeconds, HostNetwork and Added are as in Input. OfDaemonSet says that a
	// DaemonSet owns the pods.
	DefaultSeconds           *DefaultSeconds
	OfDaemonSet, HostNetwork bool
	Added                    []corev1.Toleration
	// AddedDevices is as in Input.
	AddedDevices []resourcev1.DeviceToleration
}

// Violation is a policy that does not allow a toleration of an existing pod.
type Violation struct {
	// Policy is the name of the policy.
	Policy string
	// Toleration is the first that violates it, in words.
	Toleration string
	// Field is where that stands: within the tolerations of a pod, or in the list of its
	// request.
	Field string
	// Allowed describes the grants of the policy.
	Allowed string
	// Denies is false when the policy only warns of what it does not grant, or records it.
	Denies bool
}

// AuditNeedsLabels reports whether labels of pods make a difference to some policy.
func (s *Set) AuditNeedsLabels() bool { return s != nil && s.labels }

// Audit returns the policies that existing pods violate, sorted by name, each once. Grants
// and conditions that depend on the requester, or on an unknown part of the pods, count in
// favour of the pods.
func (s *Set) Audit(ctx context.Context, in AuditInput) ([]Violation, error) {
	if s.Len() == 0 || len(in.Tolerations)+len(in.Requests) == 0 {
		return nil, nil
	}
	asked := in.Requests
	if len(in.Tolerations) > 0 {
		asked = append([]Asked{{Path: field.NewPath("tolerations"), New: in.Tolerations}}, asked...)
	}
	h := newReview(in.input())
	violated := map[int]Violation{}
	for i := range asked {
		list := &asked[i]
		for n, t := range h.fresh(list) {
			for position := range s.guarding(&t) {
				if _, ok := violated[position]; ok {
					continue
				}
				c := s.Policies[position]
				r := h.judge(ctx, &question{position: position, policy: c, t: &t, asked: list, i: n, outlasts: c.outlasted(&t) != nil})
				switch {
				case r.allowed:
				case r.fault != nil:
					return nil, r.fault
				default:
					violated[position] = Violation{
						Policy: c.name, Toleration: describe(&t), Field: list.Path.Index(n).String(), Allowed: c.remedy, Denies: c.denies,
					}
				}
			}
		}
	}
	found := make([]Violation, 0, len(violated))
	for _, position := range slices.Sorted(maps.Keys(violated)) {
		found = append(found, violated[position])
	}
	return found, nil
}

// input returns the input of the review of existing pods.
func (in *AuditInput) input() Input {
	judged := Input{
		Review: &cel.Review{
			Request:   creation(in.Namespace.Name),
			Namespace: in.Namespace,
		},
		RequesterUnknown:        true,
		objectUnknown:           true,
		Namespace:               in.Namespace.Name,
		NamespaceLabels:         in.Namespace.Labels,
		Labels:                  in.Labels,
		ServiceAccount:          in.ServiceAccount,
		DefaultSeconds:          in.DefaultSeconds,
		FromDaemonSetController: in.OfDaemonSet,
		HostNetwork:             in.HostNetwork,
		Added:                   in.Added,
		AddedDevices:            in.AddedDevices,
	}
	if judged.NamespaceLabels == nil {
		judged.NamespaceLabels = map[string]string{}
	}
	return judged
}

// creation returns the known part of the request that created a pod.
func creation(namespace string) *admissionv1.AdmissionRequest {
	kind := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	resource := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	return &admissionv1.AdmissionRequest{
		Namespace: namespace, Operation: admissionv1.Create,
		Kind: kind, RequestKind: &kind, Resource: resource, RequestResource: &resource,
	}
}

// knownFields are the fields of request that creation sets, and those of the subresource, of
// which there is none.
var knownFields = map[string]struct{}{
	"namespace": {}, "operation": {}, "kind": {}, "requestKind": {}, "resource": {}, "requestResource": {},
	"subResource": {}, "requestSubResource": {},
}

// unknown reports whether an expression reads something unknown of an existing pod.
func unknown(uses cel.Uses) bool {
	return uses.Object || uses.Requester || slices.ContainsFunc(uses.Request, func(field string) bool {
		_, ok := knownFields[field]
		return !ok
	})
}

// Ruling is the answer of one policy about one toleration of existing pods.
type Ruling struct {
	// Policy is the name of the policy.
	Policy string
	// Index is the place of the toleration, and Toleration its description.
	Index      int
	Toleration string
	// Granted is true when the policy grants it. Grants that depend on the requester count
	// as granted.
	Granted bool
	// Allowed describes the grants of the policy.
	Allowed string
	// Denies is false when the policy only warns of what it does not grant, or records it.
	Denies bool
}

// Rulings returns the answer of every policy that guards a toleration of pods, by toleration
// and name. Audit judges in the same way, and names only the first violation.
func (s *Set) Rulings(ctx context.Context, in AuditInput) ([]Ruling, error) {
	if s.Len() == 0 || len(in.Tolerations) == 0 {
		return nil, nil
	}
	h := newReview(in.input())
	asked := Asked{New: in.Tolerations}
	var rulings []Ruling
	for i, t := range h.fresh(&asked) {
		for position := range s.guarding(&t) {
			c := s.Policies[position]
			r := h.judge(ctx, &question{position: position, policy: c, t: &t, asked: &asked, i: i, outlasts: c.outlasted(&t) != nil})
			if !r.allowed && r.fault != nil {
				return nil, r.fault
			}
			rulings = append(rulings, Ruling{
				Policy: c.name, Index: i, Toleration: describe(&t), Granted: r.allowed, Allowed: c.remedy, Denies: c.denies,
			})
		}
	}
	return rulings, nil
}
