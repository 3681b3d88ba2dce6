package plugins

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2" //nolint:depguard // The scheduler logs with it, and its contexts carry no logger.
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
)

// wakePods makes every pod of a profile that may wait for devices be tried again. A pod that is
// in no store yet has not been tried either.
func wakePods(logger klog.Logger, profile fwk.Handle) {
	pods, err := profile.SharedInformerFactory().Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		logger.Error(err, "Failed to list pods to wake", "profile", profile.ProfileName())
		return
	}
	waiting := map[string]*corev1.Pod{}
	for _, pod := range pods {
		if pod.Spec.SchedulerName == profile.ProfileName() && pod.Spec.NodeName == "" && usesDevices(pod) {
			waiting[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	if len(waiting) > 0 {
		profile.Activate(logger, waiting)
	}
}

// usesDevices tells whether a pod may need devices allocated. Whether a class backs an
// extended resource can change; that it has such a name cannot.
func usesDevices(pod *corev1.Pod) bool {
	if len(pod.Spec.ResourceClaims) > 0 {
		return true
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for name := range containers[i].Resources.Requests {
				if schedutil.IsDRAExtendedResourceName(name) {
					return true
				}
			}
		}
	}
	return false
}
