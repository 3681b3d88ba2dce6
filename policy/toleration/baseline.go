package toleration

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// identity is what makes a toleration the same as another: every field, read as
// Kubernetes does.
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

// small is up to how many old tolerations are compared one by one; more are
// counted in a map, or a pod with very many would make a review quadratic.
const small = 64

// baseline knows which tolerations stood before, each as often as it did.
type baseline struct {
	// same is how many tolerations at the start did not change.
	same int

	old   list
	spent [small]bool // of old, less those at the start
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

// stood reports whether t was there before, and strikes it off.
func (b *baseline) stood(t *selector.Toleration) bool {
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
