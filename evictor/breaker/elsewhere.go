package breaker

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// Where several breakers bind a pod and hold, the pod is booked for one of them. The
// others must not take it for nobody: they would be released because all fits, and trip
// again.

// heldElsewhere notes for the other breakers that bind a pod that one of them holds it.
// The mutex is held.
func (t *term) heldElsewhere(policies []*eviction.Policy, holder types.UID) {
	for _, policy := range policies {
		if policy.UID != holder {
			t.breakers[policy.UID].elsewhere[holder]++
		}
	}
}

// handOver forgets who was held by breakers that do not hold any more. They ask again,
// and it takes its time until they are in the book. The mutex is held.
func (t *term) handOver(b *breaker) {
	for holder := range b.elsewhere {
		if other, ok := t.breakers[holder]; !ok || !other.tripped() {
			delete(b.elsewhere, holder)
			b.steady = time.Time{}
		}
	}
}

// holding returns how many pods the breaker holds by the book, at most: those booked for
// it, and those booked for others who asked it as well. One who asks twice is counted
// twice, but never are there more than the other holds.
func (b *breaker) holding(book map[types.UID]int) int {
	holding := book[b.uid]
	for holder, asked := range b.elsewhere {
		holding += min(asked, book[holder])
	}
	return holding
}

// holds reports whether a breaker holds.
func (t *term) holds(b *breaker) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return b.tripped()
}
