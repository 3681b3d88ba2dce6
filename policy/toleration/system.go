package toleration

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// DefaultSeconds are how long the API server lets every pod tolerate an unready
// or unreachable node: its flags --default-not-ready-toleration-seconds and
// --default-unreachable-toleration-seconds.
type DefaultSeconds struct {
	NotReady, Unreachable int64
}

// kubernetesSeconds is what both flags are unless set.
const kubernetesSeconds = 300

// system reports whether t is what Kubernetes itself adds to a pod, field by
// field. Such a toleration is nobody's choice, and to refuse it would refuse
// every pod, or every pod of a DaemonSet.
//
// The shapes are those of the admission plugin DefaultTolerationSeconds (TP-15),
// and of the DaemonSet controller, which count only in a request that it sent
// itself. Plugins that are off unless someone switches them on are the caller's
// to name, in Added, which is not looked at here.
func (in *Input) system(t *selector.Toleration) bool {
	if t.Target != v1alpha1.TaintTargetNode {
		return false
	}
	if t.Operator != corev1.TolerationOpExists || t.Value != "" {
		return false
	}
	switch t.Effect {
	case corev1.TaintEffectNoExecute:
		return in.systemNoExecute(t)
	case corev1.TaintEffectNoSchedule:
		return t.Seconds == nil && in.systemNoSchedule(t.Key)
	case corev1.TaintEffectPreferNoSchedule:
		return false
	default:
		return false
	}
}

func (in *Input) systemNoExecute(t *selector.Toleration) bool {
	seconds := DefaultSeconds{NotReady: kubernetesSeconds, Unreachable: kubernetesSeconds}
	if in.DefaultSeconds != nil {
		seconds = *in.DefaultSeconds
	}
	var byDefault int64
	switch t.Key {
	case corev1.TaintNodeNotReady:
		byDefault = seconds.NotReady
	case corev1.TaintNodeUnreachable:
		byDefault = seconds.Unreachable
	default:
		return false
	}
	if t.Seconds == nil {
		return in.FromDaemonSetController
	}
	return *t.Seconds == byDefault
}

func (in *Input) systemNoSchedule(key string) bool {
	switch key {
	case corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable:
		return in.FromDaemonSetController
	case corev1.TaintNodeNetworkUnavailable:
		return in.FromDaemonSetController && in.HostNetwork
	default:
		return false
	}
}
