package handlers

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// windows finds the tolerations that EvictionPolicies have for pods and claims in mode
// Window: they hold the controllers of Kubernetes off for as long as Tollgate has to
// evict by its own means. In another mode, and of a nil one, there are none.
type windows struct {
	on         bool
	namespaces namespaceObjects
}

// some reports whether any pod, or claim, gets one.
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

// of returns the windows for an object with these labels. Those of the pods that a claim is
// for are not known; of claims they are nil.
func (w *windows) of(ctx context.Context, policies *policyset.Set, req *review.Request, target v1alpha1.TaintTarget, objectLabels map[string]string) ([]v1alpha1.WindowToleration, error) {
	if !w.some(policies, target) {
		return nil, nil
	}
	namespace, err := w.namespaces.Namespace(ctx, req.Namespace)
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", req.Namespace, err)
	}
	return policies.Evictions.WindowsFor(target, &eviction.Subject{
		Namespace: req.Namespace, NamespaceLabels: labels.Set(namespace.Labels), NamespaceKnown: true, Labels: labels.Set(objectLabels),
	})
}

// ofCreated returns the windows that an object which is created has by its annotation, and the
// findings about that. A toleration without a mark is its user's own, even where it is like a
// window: it counts when Tollgate evicts, so it has to be granted. A mark that was not overruled
// by the mutating endpoint, which the API server can do without, is refused: its list would pass
// for windows ever after.
func (w *windows) ofCreated(ctx context.Context, policies *policyset.Set, req *review.Request, target v1alpha1.TaintTarget, template bool) ([]v1alpha1.WindowToleration, []policy.Finding, error) {
	m, err := markOf(req.New, template)
	if err != nil || !m.there {
		return nil, nil, err
	}
	var f review.Fields
	var labels map[string]string
	if target == v1alpha1.TaintTargetNode {
		labels = f.Texts(m.metadata, "labels")
	}
	wanted, err := w.of(ctx, policies, req, target, labels)
	if err = cmp.Or(err, f.Err()); err != nil {
		return nil, nil, err
	}
	windows := slices.DeleteFunc(v1alpha1.ParseWindow(m.value), func(one v1alpha1.WindowToleration) bool {
		return !slices.Contains(wanted, one)
	})
	if len(windows) > 0 && v1alpha1.FormatWindow(windows) == m.value {
		return windows, nil, nil
	}
	path := "metadata"
	if template {
		path = "spec.metadata"
	}
	return windows, []policy.Finding{forgedMark(path, m.value)}, nil
}

// kept returns the windows that a pod got and still had before an update. In another mode
// nothing is a window: Tollgate evicts by all tolerations of a pod.
func (w *windows) kept(req *review.Request, old *podFields) ([]v1alpha1.WindowToleration, error) {
	if w == nil || !w.on {
		return nil, nil
	}
	m, err := markOf(req.Old, false)
	return slices.DeleteFunc(v1alpha1.ParseWindow(m.value), func(one v1alpha1.WindowToleration) bool {
		return !slices.ContainsFunc(old.Spec.Tolerations, func(t corev1.Toleration) bool { return isWindow(&t, one) })
	}), err
}

// patch makes the annotation list the windows. A user who wrote one is overruled: it is only
// ever about tolerations that Tollgate added.
func (m *mark) patch(out *jsonPatch, windows []v1alpha1.WindowToleration) {
	value := v1alpha1.FormatWindow(windows)
	list := m.pointer + "/annotations"
	one := list + "/" + pointerToken(v1alpha1.AnnotationWindow)
	switch {
	case value == "" && m.there:
		out.remove(one)
	case value == m.value:
	case m.metadata.IsNull():
		out.add(m.pointer, map[string]any{"annotations": map[string]string{v1alpha1.AnnotationWindow: value}})
	case m.annotations.IsNull():
		out.add(list, map[string]string{v1alpha1.AnnotationWindow: value})
	default:
		out.add(one, value)
	}
}

// markChanged returns the finding about an update that changes the annotation: Tollgate does not
// wait for the tolerations that it lists, and knows its own by it alone.
func markChanged(req *review.Request) ([]policy.Finding, error) {
	if req.Operation != admissionv1.Update {
		return nil, nil
	}
	now, err := markOf(req.New, false)
	if err != nil {
		return nil, err
	}
	old, err := markOf(req.Old, false)
	if err != nil || now.there == old.there && now.value == old.value {
		return nil, err
	}
	return []policy.Finding{{
		Reason: policy.WindowReserved, Field: "metadata.annotations[" + v1alpha1.AnnotationWindow + "]", Value: review.Clip(now.value),
		Problem: "says which tolerations Tollgate gave when this was created",
		Remedy:  "leave the annotation as it is",
	}}, nil
}

// forgedMark is the finding about a user who creates an object, or binds a pod, with an
// annotation that only Tollgate may write. Path is that of the metadata.
func forgedMark(path, value string) policy.Finding {
	return policy.Finding{
		Reason: policy.WindowReserved, Field: path + ".annotations[" + v1alpha1.AnnotationWindow + "]", Value: review.Clip(value),
		Problem: "says which tolerations Tollgate gave, and it gave no such",
		Remedy:  "leave the annotation out",
	}
}

// nodeWindow returns a window's toleration as it stands in a pod.
func nodeWindow(w v1alpha1.WindowToleration) corev1.Toleration {
	return corev1.Toleration{
		Key: w.Key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(w.Seconds),
	}
}

// deviceWindow returns a window's toleration as it stands in a request for devices.
func deviceWindow(w v1alpha1.WindowToleration) resourcev1.DeviceToleration {
	return resourcev1.DeviceToleration{
		Key: w.Key, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: new(w.Seconds),
	}
}

func nodeWindows(windows []v1alpha1.WindowToleration) []corev1.Toleration {
	tolerations := make([]corev1.Toleration, len(windows))
	for i, w := range windows {
		tolerations[i] = nodeWindow(w)
	}
	return tolerations
}

func deviceWindows(windows []v1alpha1.WindowToleration) []resourcev1.DeviceToleration {
	tolerations := make([]resourcev1.DeviceToleration, len(windows))
	for i, w := range windows {
		tolerations[i] = deviceWindow(w)
	}
	return tolerations
}

// addWindows returns the tolerations that have to be added to those of a pod so that it has time
// for the taints with wanted keys, and the windows of wanted that it has then; marked says which
// it had before. Of a taint the first toleration in the list counts (NE-04), so a pod that
// tolerates all taints with a key itself keeps the time that it asked for.
func addWindows(have []corev1.Toleration, wanted, marked []v1alpha1.WindowToleration) (added []corev1.Toleration, windows []v1alpha1.WindowToleration) {
	for _, w := range wanted {
		switch {
		case slices.Contains(marked, w) && slices.ContainsFunc(have, func(t corev1.Toleration) bool { return isWindow(&t, w) }):
		case slices.ContainsFunc(have, func(t corev1.Toleration) bool { return toleratesKey(&t, w.Key) }):
			continue
		default:
			added = append(added, nodeWindow(w))
		}
		windows = append(windows, w)
	}
	return added, windows
}

// isWindow reports whether a toleration is, field by field, that of a window.
func isWindow(t *corev1.Toleration, w v1alpha1.WindowToleration) bool {
	return t.Key == w.Key && t.Operator == corev1.TolerationOpExists && t.Value == "" && t.Effect == corev1.TaintEffectNoExecute &&
		t.TolerationSeconds != nil && *t.TolerationSeconds == w.Seconds
}

// toleratesKey reports whether a toleration tolerates all NoExecute taints with a key,
// for however long.
func toleratesKey(t *corev1.Toleration, key string) bool {
	return t.Operator == corev1.TolerationOpExists && (t.Key == key || t.Key == "") &&
		(t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
}

// addDeviceWindows is addWindows for a request for devices. Of a taint the least seconds of all
// tolerations count (DE-23), so where one of the request's own is about the key, nothing is added
// that could shorten it. Nor is it to a request that is full (AV-11).
func addDeviceWindows(have []resourcev1.DeviceToleration, wanted, marked []v1alpha1.WindowToleration) (added []resourcev1.DeviceToleration, windows []v1alpha1.WindowToleration) {
	for _, w := range wanted {
		switch {
		case slices.Contains(marked, w) && slices.ContainsFunc(have, func(t resourcev1.DeviceToleration) bool { return isDeviceWindow(&t, w) }):
		case slices.ContainsFunc(have, func(t resourcev1.DeviceToleration) bool { return isAboutKey(&t, w.Key) }),
			len(have)+len(added) >= resourcev1.DeviceTolerationsMaxLength:
			continue
		default:
			added = append(added, deviceWindow(w))
		}
		windows = append(windows, w)
	}
	return added, windows
}

func isDeviceWindow(t *resourcev1.DeviceToleration, w v1alpha1.WindowToleration) bool {
	return t.Key == w.Key && t.Operator == resourcev1.DeviceTolerationOpExists && t.Value == "" &&
		t.Effect == resourcev1.DeviceTaintEffectNoExecute && t.TolerationSeconds != nil && *t.TolerationSeconds == w.Seconds
}

// isAboutKey reports whether a toleration tolerates some NoExecute taint with a key. An
// empty key is every key, with Equal too where it was stored like that (AV-12).
func isAboutKey(t *resourcev1.DeviceToleration, key string) bool {
	return (t.Key == key || t.Key == "") && (t.Effect == resourcev1.DeviceTaintEffectNoExecute || t.Effect == "")
}

// withoutWindows returns tolerations without those that are marked as windows.
func withoutWindows(have []corev1.Toleration, marked []v1alpha1.WindowToleration) []corev1.Toleration {
	if len(marked) == 0 {
		return have
	}
	return slices.DeleteFunc(slices.Clone(have), func(t corev1.Toleration) bool {
		return slices.ContainsFunc(marked, func(w v1alpha1.WindowToleration) bool { return isWindow(&t, w) })
	})
}
