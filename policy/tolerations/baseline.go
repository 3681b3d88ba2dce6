package tolerations

import (
	corev1 "k8s.io/api/core/v1"
)

// identity is what makes a toleration the same as another: every field, read as
// Kubernetes does.
type identity struct {
	key, value string
	operator   corev1.TolerationOperator
	effect     corev1.TaintEffect
	bounded    bool
	seconds    int64
}

func identify(t *corev1.Toleration) identity {
	id := identity{key: t.Key, value: t.Value, operator: operatorOf(t), effect: t.Effect}
	if t.TolerationSeconds != nil {
		id.bounded, id.seconds = true, max(*t.TolerationSeconds, 0)
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

	old   []corev1.Toleration // small ones, less those at the start
	spent [small]bool
	count map[identity]int
}

func newBaseline(current, old []corev1.Toleration) baseline {
	var b baseline
	for b.same < len(current) && b.same < len(old) && identify(&current[b.same]) == identify(&old[b.same]) {
		b.same++
	}
	rest := old[b.same:]
	if len(rest) <= small {
		b.old = rest
		return b
	}
	b.count = make(map[identity]int, len(rest))
	for i := range rest {
		b.count[identify(&rest[i])]++
	}
	return b
}

// stood reports whether t was there before, and strikes it off.
func (b *baseline) stood(t *corev1.Toleration) bool {
	id := identify(t)
	if b.count[id] > 0 {
		b.count[id]--
		return true
	}
	for i := range b.old {
		if !b.spent[i] && identify(&b.old[i]) == id {
			b.spent[i] = true
			return true
		}
	}
	return false
}
