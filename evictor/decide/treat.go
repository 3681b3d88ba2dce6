package decide

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// SubjectOf returns a pod as policies see it. namespaces returns the labels of a namespace, false if
// they are not known; nil if none are known.
func SubjectOf(pod *tracker.Pod, namespaces func(name string) (labels.Labels, bool)) eviction.Subject {
	subject := eviction.Subject{Namespace: pod.Namespace, Labels: pod.Labels(), PriorityClassName: pod.PriorityClassName()}
	if namespaces != nil {
		subject.NamespaceLabels, subject.NamespaceKnown = namespaces(pod.Namespace)
	}
	return subject
}

// Treat returns the treatment of an eviction by the policies in force. Its only error is an
// eviction.NamespaceUnknownError.
func Treat(set *eviction.Set, reason *Reason, subject *eviction.Subject) (eviction.Treatment, error) {
	taint := eviction.Taint{
		Target: v1alpha1.TaintTargetNode, Key: reason.Taint.Key, Value: reason.Taint.Value, Effect: reason.Taint.Effect,
	}
	if reason.Taint.Source.Kind.OnDevice() {
		taint.Target, taint.Driver = v1alpha1.TaintTargetDevice, reason.Device.Driver
	}
	return set.For(&taint, subject)
}
