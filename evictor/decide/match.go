package decide

import (
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// Tolerates reports whether a toleration of a pod matches a taint of a node, however long it
// lasts, by the very function that the scheduler and the kubelet use. What it would log, a value
// that is not a number, is for admission to complain about.
func (r Rules) Tolerates(toleration *corev1.Toleration, taint *corev1.Taint) bool {
	return toleration.ToleratesTaint(logr.Logger{}, taint, r.ComparisonOperators)
}
