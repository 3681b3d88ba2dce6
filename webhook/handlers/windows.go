package handlers

import (
	"context"
	"math"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// someWindows reports whether any pod, or claim, gets the toleration of a window. In mode Window
// EvictionPolicies have them for pods and claims: they hold the controllers of Kubernetes off for
// as long as Tollgate has to evict by its own means. In another mode there are none.
func (r request) someWindows(target v1alpha1.TaintTarget) bool {
	return r.Window && slices.ContainsFunc(r.policies.Evictions.Windows(), func(w eviction.Window) bool { return w.Target == target })
}

// windowsOf returns the windows for an object with these labels. Those of the pods that a claim is
// for are not known; of claims they are nil.
func (r request) windowsOf(ctx context.Context, target v1alpha1.TaintTarget, objectLabels map[string]string) ([]v1alpha1.WindowToleration, error) {
	if !r.someWindows(target) {
		return nil, nil
	}
	namespace, err := r.namespace(ctx)
	if err != nil {
		return nil, err
	}
	return r.policies.Evictions.WindowsFor(target, &eviction.Subject{
		Namespace: r.Namespace, NamespaceLabels: labels.Set(namespace.Labels), NamespaceKnown: true, Labels: labels.Set(objectLabels),
	})
}

// windowsOfCreated returns the windows that an object which is created has by its annotation, and the
// findings about that. A toleration without a mark is its user's own, even where it is like a
// window: it counts when Tollgate evicts, so it has to be granted. A mark that was not overruled
// by the mutating endpoint, which the API server can do without, is refused: its list would pass
// for windows ever after.
func (r request) windowsOfCreated(ctx context.Context, target v1alpha1.TaintTarget) ([]v1alpha1.WindowToleration, []policy.Finding, error) {
	m := r.markOf(r.New)
	if !m.there {
		return nil, nil, nil
	}
	var labels map[string]string
	if target == v1alpha1.TaintTargetNode {
		labels = r.Texts(m.metadata, "labels")
	}
	wanted, err := r.windowsOf(ctx, target, labels)
	if err != nil {
		return nil, nil, err
	}
	windows := slices.DeleteFunc(v1alpha1.ParseWindow(m.value), func(one v1alpha1.WindowToleration) bool {
		return !slices.Contains(wanted, one)
	})
	if len(windows) > 0 && v1alpha1.FormatWindow(windows) == m.value {
		return windows, nil, nil
	}
	return windows, []policy.Finding{m.forged()}, nil
}

// keptWindows returns the windows that a pod got and still had before an update. In another mode
// nothing is a window: Tollgate evicts by all tolerations of a pod.
func (r request) keptWindows(old *podFields) []v1alpha1.WindowToleration {
	if !r.Window {
		return nil
	}
	return slices.DeleteFunc(v1alpha1.ParseWindow(r.markOf(r.Old).value), func(one v1alpha1.WindowToleration) bool {
		return !podWindows.has(old.Spec.Tolerations, one)
	})
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
func (r request) markChanged() []policy.Finding {
	if r.Operation != admissionv1.Update {
		return nil
	}
	now, old := r.markOf(r.New), r.markOf(r.Old)
	if now.there == old.there && now.value == old.value {
		return nil
	}
	return []policy.Finding{{
		Reason: policy.WindowReserved, Field: "metadata.annotations[" + v1alpha1.AnnotationWindow + "]", Value: review.Clip(now.value),
		Problem: "says which tolerations Tollgate gave when this was created",
		Remedy:  "leave the annotation as it is",
	}}
}

// forged is the finding about a user who creates an object, or binds a pod, with an annotation that
// only Tollgate may write.
func (m *mark) forged() policy.Finding {
	path := strings.ReplaceAll(m.pointer[1:], "/", ".")
	return policy.Finding{
		Reason: policy.WindowReserved, Field: path + ".annotations[" + v1alpha1.AnnotationWindow + "]", Value: review.Clip(m.value),
		Problem: "says which tolerations Tollgate gave, and it gave no such",
		Remedy:  "leave the annotation out",
	}
}

// windowForm is how windows stand in a list of tolerations: those of a pod, or of a request for
// devices.
type windowForm[T any] struct {
	of func(*v1alpha1.WindowToleration) T
	// prevails reports whether a toleration of the user keeps a window with a key away.
	prevails func(t *T, key string) bool
	// most is the number of tolerations beyond which no window is added.
	most int
}

var (
	// Of a taint the first toleration in the list counts (NE-04), so a pod that tolerates all
	// taints with a key itself keeps the time that it asked for.
	podWindows = windowForm[corev1.Toleration]{of: (*v1alpha1.WindowToleration).OfPod, prevails: toleratesKey, most: math.MaxInt}
	// Of a taint the least seconds of all tolerations count (DE-23), so where one of the request's
	// own is about the key, nothing is added that could shorten it. Nor is it to a request that is
	// full (AV-11).
	requestWindows = windowForm[resourcev1.DeviceToleration]{
		of: (*v1alpha1.WindowToleration).OfRequest, prevails: isAboutKey, most: resourcev1.DeviceTolerationsMaxLength,
	}
)

// all returns the tolerations of windows.
func (f *windowForm[T]) all(windows []v1alpha1.WindowToleration) []T {
	tolerations := make([]T, len(windows))
	for i, w := range windows {
		tolerations[i] = f.of(&w)
	}
	return tolerations
}

// has reports whether a list has the toleration of a window, field by field.
func (f *windowForm[T]) has(list []T, w v1alpha1.WindowToleration) bool {
	return slices.ContainsFunc(list, func(t T) bool { return equality.Semantic.DeepEqual(t, f.of(&w)) })
}

// add returns the tolerations that have to be added to a list so that there is time for the taints
// with wanted keys, and the windows of wanted that it has then; marked says which it had before.
func (f *windowForm[T]) add(have []T, wanted, marked []v1alpha1.WindowToleration) (added []T, windows []v1alpha1.WindowToleration) {
	for _, w := range wanted {
		switch {
		case slices.Contains(marked, w) && f.has(have, w):
		case len(have)+len(added) >= f.most, slices.ContainsFunc(have, func(t T) bool { return f.prevails(&t, w.Key) }):
			continue
		default:
			added = append(added, f.of(&w))
		}
		windows = append(windows, w)
	}
	return added, windows
}

// toleratesKey reports whether a toleration tolerates all NoExecute taints with a key,
// for however long.
func toleratesKey(t *corev1.Toleration, key string) bool {
	return t.Operator == corev1.TolerationOpExists && (t.Key == key || t.Key == "") &&
		(t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
}

// isAboutKey reports whether a toleration tolerates some NoExecute taint with a key. An
// empty key is every key, with Equal too where it was stored like that (AV-12).
func isAboutKey(t *resourcev1.DeviceToleration, key string) bool {
	return (t.Key == key || t.Key == "") && (t.Effect == resourcev1.DeviceTaintEffectNoExecute || t.Effect == "")
}

// withoutWindows returns tolerations of a pod without those that are marked as windows.
func withoutWindows(have []corev1.Toleration, marked []v1alpha1.WindowToleration) []corev1.Toleration {
	if len(marked) == 0 {
		return have
	}
	return slices.DeleteFunc(slices.Clone(have), func(t corev1.Toleration) bool {
		return slices.ContainsFunc(marked, func(w v1alpha1.WindowToleration) bool { return podWindows.has([]corev1.Toleration{t}, w) })
	})
}
