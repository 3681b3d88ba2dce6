package toleration

import (
	"cmp"
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/policy/cel"
)

// Ruling is the answer of one policy about one toleration of existing pods, or claims.
type Ruling struct {
	// Policy is the name of the policy.
	Policy string
	// Index is the place of the toleration in its list, Field the path with it, and Toleration its
	// description.
	Index             int
	Field, Toleration string
	// Granted is true when the policy grants it. Grants and conditions that depend on the
	// requester, or on an unknown part of the object, count in its favour.
	Granted bool
	// Allowed describes the grants of the policy.
	Allowed string
	// Denies is false when the policy only warns of what it does not grant, or records it.
	Denies bool
}

// AuditNeedsLabels reports whether labels of pods make a difference to some policy.
func (s *Set) AuditNeedsLabels() bool { return s != nil && s.labels }

// Audit returns the policies that existing pods, or claims, violate, sorted by name, each with its
// first violation. The fields of the input about the request are not read. Objects with the same
// input get the same answer.
func (s *Set) Audit(ctx context.Context, namespace *corev1.Namespace, in Input) ([]Ruling, error) {
	violations, err := s.rulings(ctx, namespace, in, false)
	slices.SortFunc(violations, func(a, b Ruling) int { return cmp.Compare(a.Policy, b.Policy) })
	return violations, err
}

// Rulings returns the answer of every policy that guards a toleration of existing pods, or claims,
// by toleration and name.
func (s *Set) Rulings(ctx context.Context, namespace *corev1.Namespace, in Input) ([]Ruling, error) {
	return s.rulings(ctx, namespace, in, true)
}

// rulings returns the first refusal of each policy, and with granted all rulings.
func (s *Set) rulings(ctx context.Context, namespace *corev1.Namespace, in Input, granted bool) ([]Ruling, error) {
	if s.Len() == 0 {
		return nil, nil
	}
	in.Review = &cel.Review{Request: creation(namespace.Name), Namespace: namespace}
	in.RequesterUnknown, in.objectUnknown = true, true
	in.Namespace, in.NamespaceLabels = namespace.Name, namespace.Labels
	if in.NamespaceLabels == nil {
		in.NamespaceLabels = map[string]string{}
	}
	h := newReview(in)
	var rulings []Ruling
	for i := range in.Asked {
		list := &in.Asked[i]
		for n, t := range h.fresh(list) {
			for c := range s.guarding(&t) {
				if !granted && slices.ContainsFunc(rulings, func(r Ruling) bool { return r.Policy == c.name }) {
					continue // Its expressions would take from the budget of the others.
				}
				r := h.judge(ctx, &question{policy: c, t: &t, asked: list, i: n, outlasts: c.outlasted(&t) != nil})
				switch {
				case r.allowed && !granted:
					continue
				case !r.allowed && r.fault != nil:
					return nil, r.fault
				}
				rulings = append(rulings, Ruling{
					Policy: c.name, Index: n, Field: list.Path.Index(n).String(), Toleration: describe(&t),
					Granted: r.allowed, Allowed: c.remedy, Denies: c.denies,
				})
			}
		}
	}
	return rulings, nil
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
var knownFields = sets.New("namespace", "operation", "kind", "requestKind", "resource", "requestResource", "subResource", "requestSubResource")

// unknown reports whether an expression reads something unknown of an existing pod.
func unknown(uses cel.Uses) bool {
	return uses.Object || uses.Requester || !knownFields.HasAll(uses.Request...)
}
