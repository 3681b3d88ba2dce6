package selector

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Toleration is a toleration of a pod or of a device request, read once to be compared with many
// selectors.
type Toleration struct {
	Target v1alpha1.TaintTarget
	// Class is the DeviceClass of the request; empty, it may be any.
	Class string

	Key      string
	Operator corev1.TolerationOperator // never empty
	Value    string
	Effect   corev1.TaintEffect // empty is every one
	Seconds  *int64

	// Numeric says that the value is a number, which Lt and Gt compare.
	Numeric bool
	number  int64
	// AnyEffect says that the toleration may tolerate any effect, because it names
	// none or one that this version does not know.
	AnyEffect bool
}

// The known effects of the taints of nodes and of devices.
var (
	nodeEffects   = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	deviceEffects = []corev1.TaintEffect{corev1.TaintEffect(resourcev1.DeviceTaintEffectNone), corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}
)

// OfPod reads a toleration of a pod.
func OfPod(t *corev1.Toleration) Toleration {
	read := Toleration{
		Target:    v1alpha1.TaintTargetNode,
		Key:       t.Key,
		Operator:  cmp.Or(t.Operator, corev1.TolerationOpEqual), // AV-23
		Value:     t.Value,
		Effect:    t.Effect,
		Seconds:   t.TolerationSeconds,
		AnyEffect: !slices.Contains(nodeEffects, t.Effect),
	}
	if read.compares() {
		read.number, read.Numeric = CanonicalInt(t.Value)
	}
	return read
}

// OfDevice reads a toleration of a request for devices of a class, as FromDevice returns it.
// Its fields are those of a pod's, but for an empty key: with Equal that is every key which has the
// value (AV-12).
func OfDevice(t *corev1.Toleration, class string) Toleration {
	read := OfPod(t)
	read.Target, read.Class, read.Numeric, read.AnyEffect = v1alpha1.TaintTargetDevice, class, false, !slices.Contains(deviceEffects, t.Effect)
	return read
}

// FromDevice returns a toleration of a request for devices as one of a pod, which differs in types
// alone.
func FromDevice(t *resourcev1.DeviceToleration) *corev1.Toleration {
	return &corev1.Toleration{
		Key: t.Key, Operator: corev1.TolerationOperator(t.Operator), Value: t.Value,
		Effect: corev1.TaintEffect(t.Effect), TolerationSeconds: t.TolerationSeconds,
	}
}

// FromDevices is FromDevice for a list.
func FromDevices(list []resourcev1.DeviceToleration) []corev1.Toleration {
	tolerations := make([]corev1.Toleration, len(list))
	for i := range list {
		tolerations[i] = *FromDevice(&list[i])
	}
	return tolerations
}

// OfTaint returns the toleration of just one taint of a node.
func OfTaint(t *corev1.Taint) Toleration {
	return OfPod(&corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpEqual, Value: t.Value, Effect: t.Effect})
}

// compares reports whether the toleration compares numbers (KEP-5471). Those of
// devices do not, and may mean something else there some day.
func (t *Toleration) compares() bool {
	return t.Target == v1alpha1.TaintTargetNode &&
		(t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt)
}

// Within reports whether the toleration ends, and at most limit seconds after the
// taint. Seconds only count with effect NoExecute (NE-29, KEP-5055), and negative
// ones, which are legal (AV-23), end it at once.
func (t *Toleration) Within(limit int64) bool {
	return t.Effect == corev1.TaintEffectNoExecute && t.Seconds != nil && *t.Seconds <= limit
}

// Tolerates reports whether the toleration tolerates a taint of a node. Where the API
// server does not let tolerations compare (AV-25), none that does is stored.
func (t *Toleration) Tolerates(taint *corev1.Taint) bool {
	if t.Target != v1alpha1.TaintTargetNode || (t.Key != "" && t.Key != taint.Key) || (t.Effect != "" && t.Effect != taint.Effect) {
		return false
	}
	if t.Operator == corev1.TolerationOpExists || t.Operator == corev1.TolerationOpEqual {
		return t.Operator == corev1.TolerationOpExists || t.Value == taint.Value
	}
	n, ok := CanonicalInt(taint.Value)
	return ok && t.Numeric && (t.Operator == corev1.TolerationOpLt && n < t.number || t.Operator == corev1.TolerationOpGt && n > t.number)
}
