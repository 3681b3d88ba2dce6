package taint

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// Taint is a taint of a node or of a device. Two taints are the same if they are
// equal, which their times are where they are the same second: the functions of this
// package see to it.
type Taint struct {
	Target v1alpha1.TaintTarget
	// Driver is the driver of the device; empty in a rule that names none, which
	// is a rule over devices of every driver.
	Driver     string
	Key, Value string
	Effect     corev1.TaintEffect
	TimeAdded  time.Time // zero for none
}

// OfNode returns a taint of a node.
func OfNode(t *corev1.Taint) Taint {
	return Taint{Target: v1alpha1.TaintTargetNode, Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: second(t.TimeAdded)}
}

// OfDevice returns a taint of a device of a driver.
func OfDevice(driver string, t *resourcev1.DeviceTaint) Taint {
	return Taint{
		Target: v1alpha1.TaintTargetDevice, Driver: driver,
		Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect), TimeAdded: second(t.TimeAdded),
	}
}

// second returns a time as the API server stores it, in a form that can be compared.
func second(t *metav1.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.Unix(t.Unix(), 0).UTC()
}

// String returns the taint as kubectl writes it.
func (t Taint) String() string {
	s := policy.Short(t.Key, policy.MaxKeyLength)
	if t.Value != "" {
		s += "=" + policy.Short(t.Value, policy.Value)
	}
	return s + ":" + policy.Short(string(t.Effect), policy.Enum)
}

// object returns the taint as it stands in the API, for expressions.
func (t Taint) object() any {
	var at *metav1.Time
	if !t.TimeAdded.IsZero() {
		at = new(metav1.NewTime(t.TimeAdded))
	}
	if t.Target == v1alpha1.TaintTargetDevice {
		return &resourcev1.DeviceTaint{Key: t.Key, Value: t.Value, Effect: resourcev1.DeviceTaintEffect(t.Effect), TimeAdded: at}
	}
	return &corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: at}
}

// kind is what tells a taint from others in the same place: where two have it in
// common, one can become the other by a change of its value or time.
type kind struct {
	key    string
	effect corev1.TaintEffect
}

func (t Taint) kind() kind { return kind{t.Key, t.Effect} }

// Write is one change of a taint.
type Write struct {
	Operation v1alpha1.TaintOperation
	// Old and New are the taint before and after; Old is zero for Add, New for Remove.
	Old, New Taint
	// Path is where the taint stands.
	Path *field.Path
	// Times counts the devices of a slice whose taints changed alike, of which Path is
	// the first. Zero counts for one.
	Times int
	// replaced is the taint whose place New takes although it is of another kind, as that
	// of a rule is; zero for none.
	replaced Taint
}

// taint is what a sentence about the write names.
func (w *Write) taint() Taint {
	if w.Operation == v1alpha1.TaintRemove {
		return w.Old
	}
	return w.New
}

// before returns the taint in the place of which New stands; zero for none.
func (w *Write) before() Taint {
	if w.Operation == v1alpha1.TaintChange {
		return w.Old
	}
	return w.replaced
}
