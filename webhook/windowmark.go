package webhook

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// taken returns which windows an object that is created has by its annotation, and what
// is wrong with that. A toleration that nobody marked is its user's own, even where it
// is like a window: it counts when Tollgate evicts, so it has to be granted. A mark that
// was not overruled by what fills in, which the API server can do without, is refused:
// whatever it lists would pass for a gift ever after.
func (w *windows) taken(ctx context.Context, policies *policyset.Set, req *admission.Request, target v1alpha1.TaintTarget, template bool) ([]v1alpha1.WindowToleration, []policy.Finding, error) {
	raw := req.Object.Raw
	if !mayBeMarked(raw) {
		return nil, nil, nil
	}
	m, err := markOf(raw, template)
	if err != nil || !m.there {
		return nil, nil, err
	}
	var about subject
	if target == v1alpha1.TaintTargetNode {
		if about, err = decodeSubject(raw, true); err != nil {
			return nil, nil, err
		}
	}
	wanted, err := w.of(ctx, policies, req, target, about.labels)
	if err != nil {
		return nil, nil, err
	}
	given := slices.DeleteFunc(v1alpha1.ParseWindow(m.value), func(one v1alpha1.WindowToleration) bool {
		return !slices.Contains(wanted, one)
	})
	if len(given) > 0 && v1alpha1.FormatWindow(given) == m.value {
		return given, nil, nil
	}
	path := "metadata"
	if template {
		path = "spec.metadata"
	}
	return given, forged(path, m.value), nil
}

// kept returns the windows that a pod was given and still had before an update. In
// another mode nothing is a window: Tollgate evicts by all that stands in a pod.
func (w *windows) kept(req *admission.Request, old *corev1.Pod) ([]v1alpha1.WindowToleration, error) {
	raw := req.OldObject.Raw
	if w == nil || !w.on || !mayBeMarked(raw) {
		return nil, nil
	}
	m, err := markOf(raw, false)
	return slices.DeleteFunc(v1alpha1.ParseWindow(m.value), func(one v1alpha1.WindowToleration) bool {
		return !slices.ContainsFunc(old.Spec.Tolerations, func(t corev1.Toleration) bool { return isWindow(&t, one) })
	}), err
}

// forged says that whoever creates an object, or binds a pod, writes what only Tollgate
// may. Path is that of the metadata.
func forged(path, value string) []policy.Finding {
	return []policy.Finding{{
		Reason: policy.WindowReserved, Field: path + ".annotations[" + v1alpha1.AnnotationWindow + "]", Value: clip(value),
		Problem: "says which tolerations Tollgate gave, and it gave no such",
		Remedy:  "leave the annotation out",
	}}
}

// podStatusJudge judges the annotation alone: by the status of a pod its annotations can
// be written too.
type podStatusJudge struct{}

// Judge implements judge.
func (podStatusJudge) Judge(ctx context.Context, req admission.Request) (admission.Response, error) {
	if req.Operation != admissionv1.Update {
		return allowed(), nil
	}
	found, err := remarked(&req)
	if err != nil {
		return admission.Response{}, err
	}
	return respond(ctx, policy.Decide(found), nil), nil
}
