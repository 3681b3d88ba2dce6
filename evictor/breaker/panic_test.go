package breaker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// panicking is an evictor that panics when held pods are woken.
type panicking struct{ *replica }

func (panicking) WakeHeld(types.UID) { panic("held pods cannot be woken") }

func TestAPanicOfTheEvictorThatAnApprovalWakesIsContained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.change("p", bounded(1, time.Hour))
		r := newReplica(s)
		r.Follow(panicking{r})
		r.lead(t)
		r.locked(func() { r.standing, r.held[uidP] = tracker.Taint{Key: "broken", TimeAdded: time.Now()}, 1000 })
		r.goes(t, 1, "p")
		s.approve("a", pods(2))
		settle(3 * time.Second)
		gone, _ := r.try(3, "p")
		require.Equal(t, 2, gone, "the approval releases pods")
		r.retire(t)
	})
}
