package decision

import (
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Tollgate returns how long Tollgate's tracker and decisions take for the rule,
// with each pod that has to leave entered in a map and a queue, as the built-in
// controller does it.
func (c *Cluster) Tollgate(now time.Time) (time.Duration, error) {
	t := tracker.New()
	for _, slice := range c.slices {
		t.SetSlice(tracker.SliceOf(slice), now)
	}
	for _, claim := range c.claims {
		t.SetClaim(tracker.ClaimOf(claim))
	}
	for _, pod := range c.pods {
		t.SetPod(tracker.PodOf(pod))
	}
	t.SetDevicesKnown(true)
	queue := workqueue.NewTyped[tracker.Key]()
	defer queue.ShutDown()
	pending := map[tracker.Key]decide.Decision{}

	start := time.Now()
	for _, key := range t.SetRule(tracker.RuleOf(c.rule), now) {
		situation, known := t.Lookup(key)
		if !known {
			continue
		}
		if decision := (decide.Rules{}).Decide(now, situation); decision.Verdict == decide.EvictAt {
			pending[key] = decision
			queue.Add(key)
		}
	}
	took := time.Since(start)
	if len(pending) != len(c.pods) {
		return 0, fmt.Errorf("%d pods have to leave, want %d", len(pending), len(c.pods))
	}
	return took, nil
}
