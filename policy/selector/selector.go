package selector

import (
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// Selector is a taint selector, read once. It does not change and is safe for
// concurrent use.
type Selector struct {
	target v1alpha1.TaintTarget // Node or Device

	// key is the key selected or, with open, what selected keys begin with.
	key  string
	open bool

	values  []string
	effects []corev1.TaintEffect
	classes []string
	drivers []string

	// least and most are the smallest and the largest number of a selected value. Without
	// one, least is the largest there is and most the smallest, and no number is beyond.
	least, most int64
}

// Compile reads sel and keeps nothing of it. A key that is neither a label name nor
// a known pattern is taken for every key that begins with the text before its
// first *: no key that its author meant to select is left out.
func Compile(sel *v1alpha1.TaintSelector) Selector {
	key, _, open := strings.Cut(sel.Key, "*")
	s := Selector{
		target:  TargetOf(sel.Target),
		key:     key,
		open:    open || key == "",
		values:  slices.Clone(sel.Values),
		effects: slices.Clone(sel.Effects),
		classes: slices.Clone(sel.DeviceClasses),
		drivers: slices.Clone(sel.Drivers),
		least:   math.MinInt64,
		most:    math.MaxInt64,
	}
	if len(s.values) > 0 {
		s.least, s.most = math.MaxInt64, math.MinInt64
	}
	for _, v := range s.values {
		if n, ok := CanonicalInt(v); ok {
			s.least, s.most = min(s.least, n), max(s.most, n)
		}
	}
	return s
}

// CompileAll compiles the selectors of a policy.
func CompileAll(list []v1alpha1.TaintSelector) []Selector {
	compiled := make([]Selector, len(list))
	for i := range list {
		compiled[i] = Compile(&list[i])
	}
	return compiled
}

// Selecting returns the first selector of a list that selects a taint, or nil.
func Selecting(list []Selector, target v1alpha1.TaintTarget, driver, key, value string, effect corev1.TaintEffect) *Selector {
	for i := range list {
		if list[i].Selects(target, driver, key, value, effect) {
			return &list[i]
		}
	}
	return nil
}

// TargetOf returns the target with its default: all but devices are nodes.
func TargetOf(target v1alpha1.TaintTarget) v1alpha1.TaintTarget {
	if target == v1alpha1.TaintTargetDevice {
		return v1alpha1.TaintTargetDevice
	}
	return v1alpha1.TaintTargetNode
}

// System reports whether key belongs to the taints that Kubernetes itself sets on
// nodes, which the key * leaves out.
func System(key string) bool {
	return strings.HasPrefix(key, "node.kubernetes.io/") || strings.HasPrefix(key, "node.cloudprovider.kubernetes.io/")
}

// Target returns the kind of object that carries the selected taints: Node or Device.
func (s *Selector) Target() v1alpha1.TaintTarget { return s.target }

// Selects reports whether the selector selects a taint. The driver is that of the
// device; empty, as in a rule that names none, it may be every driver. Device
// classes do not matter to a taint.
func (s *Selector) Selects(target v1alpha1.TaintTarget, driver, key, value string, effect corev1.TaintEffect) bool {
	if s.target == v1alpha1.TaintTargetDevice && driver != "" && !anyOrContains(s.drivers, driver) {
		return false
	}
	return s.target == TargetOf(target) && s.selectsKey(key) && anyOrContains(s.values, value) && anyOrContains(s.effects, effect)
}

// SelectsEvery reports whether the selector selects all taints with a key and an
// effect, of whatever value and driver.
func (s *Selector) SelectsEvery(target v1alpha1.TaintTarget, key string, effect corev1.TaintEffect) bool {
	return s.target == TargetOf(target) && len(s.values)+len(s.drivers) == 0 && s.selectsKey(key) && anyOrContains(s.effects, effect)
}

// selectsKey reports whether a key is selected. Only nodes have system keys: nothing
// in Kubernetes sets these on a device, and to leave them out there would open a way
// around the *.
func (s *Selector) selectsKey(key string) bool {
	switch {
	case !s.open:
		return key == s.key
	case s.key == "":
		return s.target == v1alpha1.TaintTargetDevice || !System(key)
	default:
		return strings.HasPrefix(key, s.key)
	}
}

// anyOrContains reports whether a list, which stands for all if it is empty, has a value.
func anyOrContains[T comparable](list []T, value T) bool {
	return len(list) == 0 || slices.Contains(list, value)
}

// Could reports whether some taint may exist that s selects and that t tolerates.
//
// An empty key is every key, an empty effect every effect, and an empty operator
// Equal. An operator or effect that this version does not know may match, and so may
// Lt and Gt with a value it cannot compare. Lt and Gt without values to test may
// match unless no int64 is beyond theirs.
func (s *Selector) Could(t *Toleration) bool {
	return (t.AnyEffect || anyOrContains(s.effects, t.Effect)) && s.couldWithAnyEffect(t)
}

// CouldOutlast reports whether some NoExecute taint may exist that s selects and
// that t tolerates.
func (s *Selector) CouldOutlast(t *Toleration) bool {
	return (t.AnyEffect || t.Effect == corev1.TaintEffectNoExecute) && anyOrContains(s.effects, corev1.TaintEffectNoExecute) && s.couldWithAnyEffect(t)
}

func (s *Selector) couldWithAnyEffect(t *Toleration) bool {
	if s.target != t.Target || t.Class != "" && !anyOrContains(s.classes, t.Class) {
		return false
	}
	if t.Key != "" && !s.selectsKey(t.Key) {
		return false
	}
	switch {
	case t.Operator == corev1.TolerationOpEqual:
		return anyOrContains(s.values, t.Value)
	case !t.compares() || !t.Numeric:
		return true
	case t.Operator == corev1.TolerationOpLt:
		return s.least < t.number
	default: // Gt
		return s.most > t.number
	}
}

// Key returns the key for an authorizer that is asked about all taints
// of the selector: the pattern as it was written.
func (s *Selector) Key() string {
	if s.open {
		return s.key + "*"
	}
	return s.key
}

// String returns the selected taints as kubectl would write one.
func (s *Selector) String() string {
	text := policy.Short(s.key, policy.MaxKeyLength)
	switch {
	case !s.open:
	case s.key != "":
		text += "*"
	case s.target == v1alpha1.TaintTargetDevice:
		text += "* (every key)"
	default:
		text += "* (every key but the system's)"
	}
	if len(s.values) > 0 {
		text += "=" + policy.ShortList(s.values, "|", policy.Value)
	}
	if len(s.effects) > 0 {
		text += ":" + policy.ShortList(s.effects, "|", policy.Enum)
	}
	if s.target != v1alpha1.TaintTargetDevice {
		return text
	}
	text += " of devices"
	if len(s.drivers) > 0 {
		text += " of driver " + policy.ShortList(s.drivers, ", ", policy.Value)
	}
	if len(s.classes) > 0 {
		text += " of class " + policy.ShortList(s.classes, ", ", policy.Value)
	}
	return text
}

// CanonicalInt returns the number that s is the canonical decimal form of: no
// leading zeros, plus sign, spaces or -0 (AV-25), and within an int64.
func CanonicalInt(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == s
}
