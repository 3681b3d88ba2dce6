package v1alpha1

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// AnnotationWindow is the annotation of pods and ResourceClaims that lists the
// tolerations that Tollgate added in mode Window. Its value has entries "key=seconds",
// separated by commas. Tollgate ignores these tolerations when it evicts; the controllers
// of Kubernetes honour them.
const AnnotationWindow = "tollgate.dev/window"

// WindowToleration is a toleration that Tollgate added in mode Window. It has a key, the
// operator Exists, the effect NoExecute and tolerationSeconds.
type WindowToleration struct {
	Key     string
	Seconds int64
}

// OfPod returns the toleration as a pod has it.
func (w *WindowToleration) OfPod() corev1.Toleration {
	return corev1.Toleration{
		Key: w.Key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(w.Seconds),
	}
}

// OfRequest returns the toleration as a request for devices has it.
func (w *WindowToleration) OfRequest() resourcev1.DeviceToleration {
	return resourcev1.DeviceToleration{
		Key: w.Key, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: new(w.Seconds),
	}
}

// FormatWindow returns the value of AnnotationWindow, sorted and without duplicates.
func FormatWindow(given []WindowToleration) string {
	sorted := slices.Clone(given)
	slices.SortFunc(sorted, func(a, b WindowToleration) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Seconds, b.Seconds))
	})
	texts := make([]string, 0, len(sorted))
	for _, t := range slices.Compact(sorted) {
		texts = append(texts, t.Key+"="+strconv.FormatInt(t.Seconds, 10))
	}
	return strings.Join(texts, ",")
}

// ParseWindow parses the value of AnnotationWindow. It skips invalid entries; their
// tolerations count as tolerations of the user.
func ParseWindow(value string) []WindowToleration {
	if value == "" {
		return nil
	}
	var given []WindowToleration
	for entry := range strings.SplitSeq(value, ",") {
		key, text, found := strings.Cut(entry, "=")
		seconds, err := strconv.ParseInt(text, 10, 64)
		if !found || key == "" || err != nil || seconds <= 0 {
			continue
		}
		given = append(given, WindowToleration{Key: key, Seconds: seconds})
	}
	return given
}
