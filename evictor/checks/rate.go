package checks

import (
	"github.com/tollgate-dev/tollgate/evictor/ratelimit"
)

// Rate returns the check that limits the rate at which pods leave, by the paces of policies. The queue
// calls a pod that has to wait.
func Rate(queue *ratelimit.Queue) Check {
	return func(now Now, of *Eviction) Answer {
		if len(of.Treatment.Paces) == 0 {
			return Answer{}
		}
		key := of.Pod.Key
		if !queue.Ask(now.Local, key, ratelimit.LimitsOf(of.Treatment.Paces)) {
			return Answer{Wait: Recheck}
		}
		return Answer{Undo: func(now Now, end End) {
			if end == PutOff {
				queue.StepAside(now.Local, key)
				return
			}
			queue.Leave(now.Local, key, end == Left)
		}}
	}
}
