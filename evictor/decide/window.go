package decide

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// withoutWindow returns the tolerations of a pod but those that it was given in mode
// Window.
func withoutWindow(tolerations []corev1.Toleration, given []v1alpha1.WindowToleration) []corev1.Toleration {
	if len(given) == 0 {
		return tolerations
	}
	return slices.DeleteFunc(slices.Clone(tolerations), func(t corev1.Toleration) bool {
		return t.Operator == corev1.TolerationOpExists && t.Value == "" && t.Effect == corev1.TaintEffectNoExecute &&
			isGiven(given, t.Key, t.TolerationSeconds)
	})
}

// withoutDeviceWindow is withoutWindow for the tolerations of an allocation.
func withoutDeviceWindow(tolerations []resourcev1.DeviceToleration, given []v1alpha1.WindowToleration) []resourcev1.DeviceToleration {
	if len(given) == 0 {
		return tolerations
	}
	return slices.DeleteFunc(slices.Clone(tolerations), func(t resourcev1.DeviceToleration) bool {
		return t.Operator == resourcev1.DeviceTolerationOpExists && t.Value == "" && t.Effect == resourcev1.DeviceTaintEffectNoExecute &&
			isGiven(given, t.Key, t.TolerationSeconds)
	})
}

func isGiven(given []v1alpha1.WindowToleration, key string, seconds *int64) bool {
	return seconds != nil && slices.Contains(given, v1alpha1.WindowToleration{Key: key, Seconds: *seconds})
}
