package decide

import (
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// Tolerates reports whether a toleration of a pod matches a taint of a node, whatever its
// tolerationSeconds. It uses the function of the scheduler and the kubelet, without its log message
// about a value that is not a number.
func (r Rules) Tolerates(toleration *corev1.Toleration, taint *corev1.Taint) bool {
	return toleration.ToleratesTaint(logr.Logger{}, taint, r.ComparisonOperators)
}
