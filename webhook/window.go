package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// windows finds out which tolerations EvictionPolicies have for pods and claims in mode
// Window: they hold the controllers of Kubernetes off for as long as Tollgate has to
// evict by its own means. In another mode, and of a nil one, there are none.
type windows struct {
	on         bool
	namespaces namespaceObjects
}

// some reports whether any pod, or claim, is given one.
func (w *windows) some(policies *policyset.Set, target v1alpha1.TaintTarget) bool {
	if w == nil || !w.on {
		return false
	}
	for _, window := range policies.Evictions.Windows() {
		if window.Target == target {
			return true
		}
	}
	return false
}

// of returns what an object with these labels is given. Those of the pods that a claim
// is for are not known; of claims they are nil.
func (w *windows) of(ctx context.Context, policies *policyset.Set, req *admission.Request, target v1alpha1.TaintTarget, of map[string]string) ([]v1alpha1.WindowToleration, error) {
	if !w.some(policies, target) {
		return nil, nil
	}
	namespace, err := w.namespaces.Namespace(ctx, req.Namespace)
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", req.Namespace, err)
	}
	return policies.Evictions.WindowsFor(target, &eviction.Subject{
		Namespace: req.Namespace, NamespaceLabels: labels.Set(namespace.Labels), NamespaceKnown: true, Labels: labels.Set(of),
	})
}

// mayBeMarked reports whether an object can have the annotation: cheaply, and yes too
// often.
func mayBeMarked(raw []byte) bool { return bytes.Contains(raw, []byte(v1alpha1.AnnotationWindow)) }

// mark is the annotation that says what was given, in the metadata of an object, or of
// the claims of a template.
type mark struct {
	// pointer is that of the metadata.
	pointer string
	// metadata and annotations are as they were sent.
	metadata, annotations json.RawMessage
	value                 string
	there                 bool
}

// markOf reads the annotation of an object; with template, that which the claims of a
// ResourceClaimTemplate get.
func markOf(raw []byte, template bool) (mark, error) {
	m := mark{pointer: "/metadata"}
	object := json.RawMessage(raw)
	var value json.RawMessage
	var err error
	if template {
		m.pointer, object = "/spec/metadata", nil
		err = findMembers(raw, member{"spec", &object})
	}
	err = errors.Join(err,
		findMembers(object, member{"metadata", &m.metadata}),
		findMembers(m.metadata, member{"annotations", &m.annotations}),
		findMembers(m.annotations, member{v1alpha1.AnnotationWindow, &value}))
	if err == nil {
		m.there = value != nil
		m.value, err = decodeString(value)
	}
	if err != nil {
		return m, &badReviewError{fmt.Errorf("decode the annotation %s: %w", v1alpha1.AnnotationWindow, err)}
	}
	return m, nil
}

// patch has the annotation say what was given. A user who wrote one is overruled: it
// is only ever about what Tollgate gave.
func (m *mark) patch(out *patch, given []v1alpha1.WindowToleration) {
	value := v1alpha1.FormatWindow(given)
	list := m.pointer + "/annotations"
	one := list + "/" + pointerToken(v1alpha1.AnnotationWindow)
	switch {
	case value == "" && m.there:
		out.remove(one)
	case value == m.value:
	case isNull(m.metadata):
		out.add(m.pointer, map[string]any{"annotations": map[string]string{v1alpha1.AnnotationWindow: value}})
	case isNull(m.annotations):
		out.add(list, map[string]string{v1alpha1.AnnotationWindow: value})
	default:
		out.add(one, value)
	}
}

// remarked returns what is wrong with an update that changes the annotation: what it
// lists Tollgate does not wait for, and nothing else it knows as its own gift.
func remarked(req *admission.Request) ([]policy.Finding, error) {
	if req.Operation != admissionv1.Update {
		return nil, nil
	}
	now, err := markOf(req.Object.Raw, false)
	if err != nil {
		return nil, err
	}
	old, err := markOf(req.OldObject.Raw, false)
	if err != nil || now.there == old.there && now.value == old.value {
		return nil, err
	}
	return []policy.Finding{{
		Reason: policy.WindowReserved, Field: "metadata.annotations[" + v1alpha1.AnnotationWindow + "]", Value: clip(now.value),
		Problem: "says which tolerations Tollgate gave when this was created",
		Remedy:  "leave the annotation as it is",
	}}, nil
}
