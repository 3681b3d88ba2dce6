package toleration

import (
	"encoding/json"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

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

	// Added are further tolerations that the caller knows the API server to have
	// added to this object, such as those of its RuntimeClass. They are not
	// judged; all fields must be the same.
	Added []corev1.Toleration
	// AddedDevices are the same of requests for devices, which Tollgate itself adds.
	AddedDevices []resourcev1.DeviceToleration

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

	// Devices and OldDevices are the same of a request for devices.
	Devices, OldDevices []resourcev1.DeviceToleration
	// Class is the DeviceClass of that request; empty, it may be any.
	Class string
}

// list is the tolerations of a pod or of a device request.
type list struct {
	pod     []corev1.Toleration
	devices []resourcev1.DeviceToleration
	class   string
}

func (a *Asked) current() list { return list{a.New, a.Devices, a.Class} }

func (a *Asked) before() list { return list{a.Old, a.OldDevices, a.Class} }

func (l *list) len() int { return len(l.pod) + len(l.devices) }

func (l *list) at(i int) selector.Toleration {
	if i < len(l.pod) {
		return selector.OfPod(&l.pod[i])
	}
	return selector.OfDevice(&l.devices[i-len(l.pod)], l.class)
}

// written returns the toleration as it stands in the object.
func (l *list) written(i int) any {
	if i < len(l.pod) {
		return &l.pod[i]
	}
	return &l.devices[i-len(l.pod)]
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
	seconds := DefaultSeconds{NotReady: kubernetesSeconds, Unreachable: kubernetesSeconds}
	if in.DefaultSeconds != nil {
		seconds = *in.DefaultSeconds
	}
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
	id := identity{target: t.Target, key: t.Key, value: t.Value, operator: t.Operator, effect: t.Effect}
	if t.Seconds != nil {
		id.bounded, id.seconds = true, max(*t.Seconds, 0)
	}
	return id
}

// small is the number of old tolerations that are compared one by one. More are counted in a
// map: otherwise a review of a pod with very many would take quadratic time.
const small = 64

// baseline holds the tolerations of the old object, each as often as it is there.
type baseline struct {
	// same is the number of tolerations at the start that did not change.
	same int

	old   list
	spent [small]bool // by place in old after those at the start
	count map[identity]int
}

func newBaseline(current, old list) baseline {
	b := baseline{old: old}
	for b.same < current.len() && b.same < old.len() {
		now, before := current.at(b.same), old.at(b.same)
		if identify(&now) != identify(&before) {
			break
		}
		b.same++
	}
	rest := old.len() - b.same
	if rest <= small {
		return b
	}
	b.count = make(map[identity]int, rest)
	for i := b.same; i < old.len(); i++ {
		t := old.at(i)
		b.count[identify(&t)]++
	}
	return b
}

// take reports whether t is in the baseline, and removes it.
func (b *baseline) take(t *selector.Toleration) bool {
	id := identify(t)
	if b.count != nil {
		if b.count[id] == 0 {
			return false
		}
		b.count[id]--
		return true
	}
	for i := b.same; i < b.old.len(); i++ {
		before := b.old.at(i)
		if !b.spent[i-b.same] && identify(&before) == id {
			b.spent[i-b.same] = true
			return true
		}
	}
	return false
}
