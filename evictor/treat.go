package evictor

import (
	"errors"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// SubjectOf returns what policies ask of a pod. Namespaces returns the labels of a
// namespace, and false while they are not known; nil knows none.
func SubjectOf(pod *tracker.Pod, namespaces func(name string) (labels.Labels, bool)) eviction.Subject {
	subject := eviction.Subject{Namespace: pod.Namespace, Labels: pod.Labels(), PriorityClassName: pod.PriorityClassName()}
	if namespaces != nil {
		subject.NamespaceLabels, subject.NamespaceKnown = namespaces(pod.Namespace)
	}
	return subject
}

// Treat returns how an eviction because of a reason is carried out. The only error is an
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

// HeldByPolicy returns why an EvictionPolicy does not let an eviction be carried out,
// whatever else happens, and the name of that policy. Both are empty when none does.
// Unknown is the error of Treat.
func HeldByPolicy(treatment eviction.Treatment, unknown error) (why HoldReason, policy string) {
	switch {
	case unknown != nil:
		if asks, ok := errors.AsType[*eviction.NamespaceUnknownError](unknown); ok {
			policy = asks.Policy
		}
		return HoldNamespaceUnknown, policy
	case treatment.Policy == nil:
		return "", ""
	case treatment.Policy.Paused:
		return HoldPaused, treatment.Policy.Name
	case treatment.Protected:
		return HoldProtected, treatment.Policy.Name
	default:
		return "", ""
	}
}
