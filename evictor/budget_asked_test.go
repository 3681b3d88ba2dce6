package evictor

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/evictor/act"
)

// crowdedBudget answers in 10 ms for pods without a budget, and in half a second for all
// others.
type crowdedBudget struct {
	mu             sync.Mutex
	asking, most   int
	free, budgeted []time.Time
}

func (c *crowdedBudget) Evict(_ context.Context, what act.Order) (act.Attempt, error) {
	if !what.Guarded {
		time.Sleep(10 * time.Millisecond)
		c.note(func() { c.free = append(c.free, time.Now()) })
		return act.Attempt{Outcome: act.Evicted, Sent: true}, nil
	}
	c.note(func() {
		c.asking++
		c.most = max(c.most, c.asking)
	})
	time.Sleep(500 * time.Millisecond)
	c.note(func() {
		c.asking--
		c.budgeted = append(c.budgeted, time.Now())
	})
	return act.Attempt{Outcome: act.Evicted, Sent: true}, nil
}

func (c *crowdedBudget) note(what func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what()
}

func TestG18ABudgetOfManyPodsSlowsDownNobodyElse(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]func(*evictionSpec){
		"without a pace": byEviction,
		"at a pace": func(spec *evictionSpec) {
			byEviction(spec)
			paced(100, 10)(spec)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				const pods = 100
				w.options.Workers = 8
				w.setPolicy(newPolicy("p", policy))
				w.start()
				w.allow("web", pods)
				api := &crowdedBudget{}
				w.evictor.effector = api
				for i := range 2 * pods {
					pod := newPod(podName(i), "n")
					if i < pods {
						pod = labelled(pod, "web")
					}
					w.setPod(pod)
				}
				began := time.Now()
				w.setNode("n", noExecute("gpu"))
				w.pass(time.Minute)
				api.note(func() {
					require.Len(t, api.free, pods)
					require.Less(t, slices.MaxFunc(api.free, time.Time.Compare).Sub(began), 3*time.Second)
					require.Len(t, api.budgeted, pods)
					require.Less(t, slices.MaxFunc(api.budgeted, time.Time.Compare).Sub(began), pods/4*500*time.Millisecond+5*time.Second)
					require.Equal(t, 4, api.most)
				})
			})
		})
	}
}
