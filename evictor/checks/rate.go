package checks

import (
	"github.com/tollgate-dev/tollgate/evictor/ratelimit"
)

// Rate returns the check that bounds how many pods leave in a second, by the paces of the
// policies. A pod that has to wait is called by the queue.
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
