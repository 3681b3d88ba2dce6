package selector

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Could reports whether some taint may exist that s selects and that t tolerates.
//
// An empty key is every key, an empty effect every effect, and an empty operator
// Equal. An operator or effect that this version does not know may match, and so may
// Lt and Gt with a value it cannot compare. Lt and Gt without values to test may
// match unless no int64 is beyond theirs.
func (s *Selector) Could(t *Toleration) bool {
	return s.couldCarry(t) && s.couldKey(t) && s.couldEffect(t) && s.couldValue(t)
}

// CouldOutlast reports whether some NoExecute taint may exist that s selects and
// that t tolerates.
func (s *Selector) CouldOutlast(t *Toleration) bool {
	return s.couldCarry(t) && t.MayEvict() && s.selectsEffect(corev1.TaintEffectNoExecute) && s.couldKey(t) && s.couldValue(t)
}

func (s *Selector) couldCarry(t *Toleration) bool {
	if s.target != t.Target {
		return false
	}
	return t.Target != v1alpha1.TaintTargetDevice || t.Class == "" || len(s.classes) == 0 || slices.Contains(s.classes, t.Class)
}

func (s *Selector) couldKey(t *Toleration) bool {
	return t.Key == "" || s.selectsKey(t.Key)
}

func (s *Selector) couldEffect(t *Toleration) bool {
	return t.anyEffect || s.selectsEffect(t.Effect)
}

func (s *Selector) couldValue(t *Toleration) bool {
	switch {
	case t.Operator == corev1.TolerationOpEqual:
		return len(s.values) == 0 || slices.Contains(s.values, t.Value)
	case !t.compares() || !t.numeric:
		return true
	case t.Operator == corev1.TolerationOpLt:
		return s.reaches(t.number > math.MinInt64, s.least < t.number)
	default: // Gt
		return s.reaches(t.number < math.MaxInt64, s.most > t.number)
	}
}

// reaches returns anyValue where every value is selected, and else listed.
func (s *Selector) reaches(anyValue, listed bool) bool {
	if len(s.values) == 0 {
		return anyValue
	}
	return listed
}
