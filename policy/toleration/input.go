package toleration

import (
	"encoding/json"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Input is an object whose tolerations are judged, and what must be known about the
// request that brings it.
type Input struct {
	// Review is the request that expressions read, with the authorizer for expressions and
	// for grants by RBAC.
	Review *cel.Review
	// User sent the request.
	User authenticationv1.UserInfo
	// RequesterUnknown is true if the user who set the tolerations did not send the request.
	// Requirements of grants on the requester then count as satisfied. matchConditions are
	// evaluated with the request as usual.
	RequesterUnknown bool

	// Namespace and NamespaceLabels are the namespace of the object. Nil labels say that the
	// namespace was not read: an input that needs it (NeedsNamespace) cannot be judged then.
	Namespace       string
	NamespaceLabels map[string]string

	// Labels are those of the pod, the template or the claim.
	Labels map[string]string
	// ServiceAccount is the name of the pod's; empty for claims, which have none.
	ServiceAccount string
	// Pod and Claim are what is judged, in JSON with metadata and spec, as
	// expressions see it: the one that there is.
	Pod, Claim json.RawMessage

	// OfDevices says that the object is a claim. Its tolerations, and those in Added, are of
	// devices, in the form that selector.FromDevice returns.
	OfDevices bool
	// Asked are the lists of tolerations of the object.
	Asked []Asked

	// Inherited are tolerations of the template that the object was made from. Its
	// author was judged for them, when it was written.
	Inherited []corev1.Toleration

	// DefaultSeconds are the seconds of the API server's
	// DefaultTolerationSeconds plugin; nil means the 300 it has by default.
	DefaultSeconds *DefaultSeconds

	// FromDaemonSetController says that the DaemonSet controller itself sent the
	// request. An ownerReference does not prove that; the identity of the
	// requester does.
	FromDaemonSetController bool

	// HostNetwork is that of the pod. The DaemonSet controller adds a toleration
	// more where it is set.
	HostNetwork bool

	// Added are further tolerations that the caller knows the API server, or Tollgate itself, to
	// have added to this object, such as those of its RuntimeClass. They are not
	// judged; all fields must be the same.
	Added []corev1.Toleration

	// Path is where the node is named that a pod is put on. Only JudgeNode reads it.
	Path *field.Path

	// objectUnknown says that of the object only what stands here is known.
	objectUnknown bool
}

// Asked is one list of tolerations, of a pod or of a request for devices.
type Asked struct {
	// Path is the path of the list.
	Path *field.Path
	// New are the tolerations as they would be stored, and Old those that are: none
	// on create. Only what is in New and not in Old is judged.
	New, Old []corev1.Toleration
	// Class is the DeviceClass of a request for devices; empty, it may be any.
	Class string
}

// read reads a toleration of the object, of a request for devices of a class if it is a claim.
func (in *Input) read(t *corev1.Toleration, class string) selector.Toleration {
	if in.OfDevices {
		return selector.OfDevice(t, class)
	}
	return selector.OfPod(t)
}

// DefaultSeconds are how long the API server lets every pod tolerate an unready
// or unreachable node: its flags --default-not-ready-toleration-seconds and
// --default-unreachable-toleration-seconds.
type DefaultSeconds struct {
	NotReady, Unreachable int64
}

// kubernetesSeconds is the default of both flags.
const kubernetesSeconds = 300

// system reports whether t is a toleration that Kubernetes itself adds to a pod, field by
// field. No user chose it, and to refuse it would refuse every pod, or every pod of a
// DaemonSet.
//
// These are the tolerations of the admission plugin DefaultTolerationSeconds (TP-15), and
// those of the DaemonSet controller, which count only in a request that it sent itself. The
// caller names those of plugins that are off by default in Added, which is not read here.
func (in *Input) system(t *selector.Toleration) bool {
	if t.Target != v1alpha1.TaintTargetNode || t.Operator != corev1.TolerationOpExists || t.Value != "" {
		return false
	}
	seconds := ptr.Deref(in.DefaultSeconds, DefaultSeconds{NotReady: kubernetesSeconds, Unreachable: kubernetesSeconds})
	effect, byDefault := corev1.TaintEffectNoExecute, seconds.NotReady
	switch t.Key {
	case corev1.TaintNodeNotReady:
	case corev1.TaintNodeUnreachable:
		byDefault = seconds.Unreachable
	case corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable:
		effect = corev1.TaintEffectNoSchedule
	case corev1.TaintNodeNetworkUnavailable:
		if !in.HostNetwork {
			return false
		}
		effect = corev1.TaintEffectNoSchedule
	default:
		return false
	}
	switch {
	case t.Effect != effect:
		return false
	case t.Seconds == nil:
		return in.FromDaemonSetController
	default:
		return effect == corev1.TaintEffectNoExecute && *t.Seconds == byDefault
	}
}

// GuardsDefaults reports whether a policy guards a taint that the admission plugin
// DefaultTolerationSeconds has every pod tolerate for some time.
func (s *Set) GuardsDefaults() bool {
	return s.Len() > 0 && slices.ContainsFunc([]string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}, func(key string) bool {
		every := selector.OfPod(&corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
		return s.guards(&every, false)
	})
}

// identity has every field of a toleration, read as Kubernetes does. Two tolerations are the
// same if their identities are.
type identity struct {
	target     v1alpha1.TaintTarget
	key, value string
	operator   corev1.TolerationOperator
	effect     corev1.TaintEffect
	bounded    bool
	seconds    int64
}

func identify(t *selector.Toleration) identity {
	return identity{
		target: t.Target, key: t.Key, value: t.Value, operator: t.Operator, effect: t.Effect,
		bounded: t.Seconds != nil, seconds: max(ptr.Deref(t.Seconds, 0), 0),
	}
}
