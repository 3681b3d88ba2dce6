package tolerations

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// CouldTolerate reports whether some taint of a node may exist that sel selects
// and that tol tolerates.
//
// An empty key is every key, an empty effect every effect, and an empty operator
// Equal. Where this version cannot tell it says true, so that what a later
// Kubernetes understands does not slip by: an operator or effect it does not
// know, and Lt and Gt with a value it cannot compare. Lt and Gt without values
// to test say true unless no int64 is beyond theirs.
//
// A selector of device taints selects no taint of a node.
func CouldTolerate(tol corev1.Toleration, sel v1alpha1.TaintSelector) bool {
	if sel.Target == v1alpha1.TaintTargetDevice {
		return false
	}
	g, a := newGuard(&sel), newAsk(&tol)
	return g.could(&a)
}

// guard is a selector of node taints, read once.
type guard struct {
	// key is the key guarded or, with open, what guarded keys begin with.
	key  string
	open bool

	values  []string
	effects []corev1.TaintEffect

	// least and most are the smallest and the largest number among values;
	// without numbers, the largest and the smallest there are, which nothing is
	// beyond.
	least, most int64
}

// newGuard reads sel, which must not be a selector of device taints. A key that
// is neither a label name nor a known pattern is taken for every key that begins
// with what stands before its first *: what its author meant to guard is not
// left open.
func newGuard(sel *v1alpha1.TaintSelector) guard {
	key, _, open := strings.Cut(sel.Key, "*")
	g := guard{
		key:     key,
		open:    open || key == "",
		values:  slices.Clone(sel.Values),
		effects: slices.Clone(sel.Effects),
		least:   math.MaxInt64,
		most:    math.MinInt64,
	}
	for _, v := range g.values {
		if n, ok := canonicalInt(v); ok {
			g.least, g.most = min(g.least, n), max(g.most, n)
		}
	}
	return g
}

// could reports whether a tolerates a taint that g guards.
func (g *guard) could(a *ask) bool {
	return g.couldKey(a) && g.couldEffect(a) && g.couldValue(a)
}

// couldOutlast reports whether a tolerates a NoExecute taint that g guards.
func (g *guard) couldOutlast(a *ask) bool {
	return a.mayEvict() && g.selectsEffect(corev1.TaintEffectNoExecute) && g.couldKey(a) && g.couldValue(a)
}

func (g *guard) couldKey(a *ask) bool {
	switch {
	case a.key == "":
		return true
	case !g.open:
		return a.key == g.key
	case g.key == "":
		return !systemKey(a.key)
	default:
		return strings.HasPrefix(a.key, g.key)
	}
}

func (g *guard) couldEffect(a *ask) bool {
	return a.anyEffect || g.selectsEffect(a.effect)
}

func (g *guard) selectsEffect(effect corev1.TaintEffect) bool {
	return len(g.effects) == 0 || slices.Contains(g.effects, effect)
}

func (g *guard) couldValue(a *ask) bool {
	switch a.operator {
	case corev1.TolerationOpEqual:
		return len(g.values) == 0 || slices.Contains(g.values, a.value)
	case corev1.TolerationOpLt:
		return !a.numeric || g.reaches(a.number > math.MinInt64, g.least < a.number)
	case corev1.TolerationOpGt:
		return !a.numeric || g.reaches(a.number < math.MaxInt64, g.most > a.number)
	case corev1.TolerationOpExists:
		return true
	default:
		return true
	}
}

// reaches returns anyValue where every value is guarded, and else listed.
func (g *guard) reaches(anyValue, listed bool) bool {
	if len(g.values) == 0 {
		return anyValue
	}
	return listed
}

// systemKey reports whether key belongs to the taints that Kubernetes itself
// sets, which the key * leaves out.
func systemKey(key string) bool {
	return strings.HasPrefix(key, "node.kubernetes.io/") || strings.HasPrefix(key, "node.cloudprovider.kubernetes.io/")
}

// String returns the guarded taints as kubectl would write one.
func (g *guard) String() string {
	var b strings.Builder
	switch {
	case !g.open:
		b.WriteString(word(g.key, maxKey))
	case g.key == "":
		b.WriteString("* (every key but the system's)")
	default:
		b.WriteString(word(g.key, maxKey) + "*")
	}
	if len(g.values) > 0 {
		b.WriteString("=" + list(g.values, "|", maxValue))
	}
	if len(g.effects) > 0 {
		b.WriteString(":" + list(g.effects, "|", maxEnum))
	}
	return b.String()
}
