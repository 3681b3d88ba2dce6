package webhook

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

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

func nodeWindows(given []v1alpha1.WindowToleration) []corev1.Toleration {
	tolerations := make([]corev1.Toleration, len(given))
	for i, w := range given {
		tolerations[i] = nodeWindow(w)
	}
	return tolerations
}

func deviceWindows(given []v1alpha1.WindowToleration) []resourcev1.DeviceToleration {
	tolerations := make([]resourcev1.DeviceToleration, len(given))
	for i, w := range given {
		tolerations[i] = deviceWindow(w)
	}
	return tolerations
}

// giveWindows returns what is added to the tolerations of a pod so that it has time of
// the taints with wanted keys, and which of wanted stand there then because they were
// given; marked says which stood there before because of that. Of a taint the first
// exampleToleration in the list counts (NE-04), so a pod whose own tolerate all taints with a
// key keeps the time that it asked for.
func giveWindows(have []corev1.Toleration, wanted, marked []v1alpha1.WindowToleration) (added []corev1.Toleration, given []v1alpha1.WindowToleration) {
	for _, w := range wanted {
		one := nodeWindow(w)
		switch {
		case slices.Contains(marked, w) && slices.ContainsFunc(have, func(t corev1.Toleration) bool { return isWindow(&t, w) }):
		case slices.ContainsFunc(have, func(t corev1.Toleration) bool { return toleratesKey(&t, w.Key) }):
			continue
		default:
			added = append(added, one)
		}
		given = append(given, w)
	}
	return added, given
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

// giveWindowsToRequest is giveWindows for a request for devices. Of a taint the least
// seconds of all tolerations count (DE-23), so where one of the request's own is about
// the key, nothing is added that could shorten it. Nor is it to a request that is full
// (AV-11).
func giveWindowsToRequest(have []resourcev1.DeviceToleration, wanted, marked []v1alpha1.WindowToleration) (added []resourcev1.DeviceToleration, given []v1alpha1.WindowToleration) {
	for _, w := range wanted {
		switch {
		case slices.Contains(marked, w) && slices.ContainsFunc(have, func(t resourcev1.DeviceToleration) bool { return isDeviceWindow(&t, w) }):
		case slices.ContainsFunc(have, func(t resourcev1.DeviceToleration) bool { return isAboutKey(&t, w.Key) }),
			len(have)+len(added) >= resourcev1.DeviceTolerationsMaxLength:
			continue
		default:
			added = append(added, deviceWindow(w))
		}
		given = append(given, w)
	}
	return added, given
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

// withoutWindows returns tolerations without those that are marked as given.
func withoutWindows(have []corev1.Toleration, marked []v1alpha1.WindowToleration) []corev1.Toleration {
	if len(marked) == 0 {
		return have
	}
	return slices.DeleteFunc(slices.Clone(have), func(t corev1.Toleration) bool {
		return slices.ContainsFunc(marked, func(w v1alpha1.WindowToleration) bool { return isWindow(&t, w) })
	})
}

// standing returns which windows of marked a request has.
func standing(have []resourcev1.DeviceToleration, marked []v1alpha1.WindowToleration) []v1alpha1.WindowToleration {
	var found []v1alpha1.WindowToleration
	for _, w := range marked {
		if slices.ContainsFunc(have, func(t resourcev1.DeviceToleration) bool { return isDeviceWindow(&t, w) }) {
			found = append(found, w)
		}
	}
	return found
}
