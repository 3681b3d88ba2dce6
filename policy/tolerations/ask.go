package tolerations

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// ask is a toleration as it is held against selectors: read once, however many
// policies look at it.
type ask struct {
	key      string
	operator corev1.TolerationOperator // never empty
	value    string
	effect   corev1.TaintEffect
	seconds  *int64

	// number is value where numeric; Lt and Gt compare it.
	number  int64
	numeric bool
	// anyEffect says that the toleration may tolerate any effect, because it
	// names none or one that this version does not know.
	anyEffect bool
}

func newAsk(t *corev1.Toleration) ask {
	a := ask{
		key:       t.Key,
		operator:  operatorOf(t),
		value:     t.Value,
		effect:    t.Effect,
		seconds:   t.TolerationSeconds,
		anyEffect: !knownEffect(t.Effect),
	}
	if a.compares() {
		a.number, a.numeric = canonicalInt(t.Value)
	}
	return a
}

// operatorOf returns the operator of t, with the default that Kubernetes gives
// it: none means Equal (AV-23).
func operatorOf(t *corev1.Toleration) corev1.TolerationOperator {
	if t.Operator == "" {
		return corev1.TolerationOpEqual
	}
	return t.Operator
}

// compares reports whether the toleration compares numbers (KEP-5471).
func (a *ask) compares() bool {
	return a.operator == corev1.TolerationOpLt || a.operator == corev1.TolerationOpGt
}

// wildcard reports whether the toleration tolerates every key and value.
func (a *ask) wildcard() bool {
	return a.key == "" && a.operator == corev1.TolerationOpExists
}

// mayEvict reports whether the toleration may tolerate a taint of effect
// NoExecute with a key and value it tolerates.
func (a *ask) mayEvict() bool {
	return a.anyEffect || a.effect == corev1.TaintEffectNoExecute
}

// within reports whether the toleration ends, and at most limit seconds after
// the taint. Seconds only count with effect NoExecute (NE-29), and negative ones,
// which are legal (AV-23), end it at once.
func (a *ask) within(limit int64) bool {
	return a.effect == corev1.TaintEffectNoExecute && a.seconds != nil && *a.seconds <= limit
}

func knownEffect(effect corev1.TaintEffect) bool {
	switch effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		return true
	default:
		return false
	}
}

// canonicalInt returns the number that s is the canonical decimal form of: no
// leading zeros, plus sign, spaces or -0 (AV-25), and within an int64.
func canonicalInt(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == s
}
