package tolerations

import (
	"context"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/policy/expression"
)

// AuditInput is what pods that stand already have in common. Pods for which all of it
// is the same get the same answer.
type AuditInput struct {
	Namespace *corev1.Namespace
	// Labels of the pods; they matter where AuditNeedsLabels says so.
	Labels         map[string]string
	ServiceAccount string
	Tolerations    []corev1.Toleration

	// DefaultSeconds, HostNetwork and Added are as in Input. OfDaemonSet says that a
	// DaemonSet owns the pods.
	DefaultSeconds           *DefaultSeconds
	OfDaemonSet, HostNetwork bool
	Added                    []corev1.Toleration
}

// Violation is a policy that does not allow a toleration of a pod that stands.
type Violation struct {
	// Policy is the name of the policy.
	Policy string
	// Toleration is the first that violates it, in words.
	Toleration string
}

// AuditNeedsLabels reports whether labels of pods make a difference to some policy.
func (s *Set) AuditNeedsLabels() bool { return s != nil && s.labels }

// Audit returns which policies pods that stand already violate, sorted by name, each
// once. Nobody knows any more who created them, and not all of them is known: what
// depends on that is not held against them.
func (s *Set) Audit(ctx context.Context, in AuditInput) ([]Violation, error) {
	if s.Len() == 0 || len(in.Tolerations) == 0 {
		return nil, nil
	}
	return s.audit(ctx, in.input(), in.Tolerations)
}

// input returns what is judged of pods that stand already.
func (in *AuditInput) input() Input {
	judged := Input{
		Review: &expression.Review{
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
	}
	if judged.NamespaceLabels == nil {
		judged.NamespaceLabels = map[string]string{}
	}
	return judged
}

// creation is what is known of the request by which a pod came to be.
func creation(namespace string) *admissionv1.AdmissionRequest {
	kind := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	resource := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	return &admissionv1.AdmissionRequest{
		Namespace: namespace, Operation: admissionv1.Create,
		Kind: kind, RequestKind: &kind, Resource: resource, RequestResource: &resource,
	}
}

// known are the fields of request that creation tells. None of a subresource is known
// too.
var known = map[string]struct{}{
	"namespace": {}, "operation": {}, "kind": {}, "requestKind": {}, "resource": {}, "requestResource": {},
	"subResource": {}, "requestSubResource": {},
}

// unknown reports whether an expression reads what is not known of a pod that stands.
func unknown(uses expression.Uses) bool {
	return uses.Object || uses.Requester || slices.ContainsFunc(uses.Request, func(field string) bool {
		_, ok := known[field]
		return !ok
	})
}

func (s *Set) audit(ctx context.Context, in Input, tolerations []corev1.Toleration) ([]Violation, error) {
	h := newHearing(in)
	asked := Asked{New: tolerations}
	violated := map[int]string{}
	for i, t := range h.fresh(&asked) {
		for position := range s.guarding(&t) {
			if _, ok := violated[position]; ok {
				continue
			}
			c := s.policies[position]
			r := h.rule(ctx, &question{position: position, policy: c, t: &t, asked: &asked, i: i, outlasts: c.outlasted(&t) != nil})
			switch {
			case r.allowed:
			case r.fault != nil:
				return nil, r.fault
			default:
				violated[position] = describe(&t)
			}
		}
	}
	list := make([]Violation, 0, len(violated))
	for _, position := range slices.Sorted(maps.Keys(violated)) {
		list = append(list, Violation{Policy: s.policies[position].name, Toleration: violated[position]})
	}
	return list, nil
}
