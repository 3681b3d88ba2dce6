package breaker

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Cause is the taint because of which a pod is to go.
type Cause struct {
	Carrier tracker.Source
	// Patch is the ResourceSlicePatch that the carrier is written out for; zero for none.
	Patch  tracker.PatchRef
	Key    string
	Effect corev1.TaintEffect
}

// Answer says whether a pod may go. Exactly one of its fields is set.
type Answer struct {
	// Permit lets one pod go.
	Permit *Permit
	// HeldBy is the policy whose breaker holds the pod.
	HeldBy *eviction.Policy
	// Wait is after how long to ask again: leave is being written, or it is not known
	// yet what becomes of pods that were given all the leave that there is.
	Wait time.Duration
}

// Permit lets one pod go, in one attempt that is over within the Timeout of the
// Keeper. It is safe for concurrent use. The nil Permit does nothing.
type Permit struct {
	// mu guards the leases, and is that of the term in which they were made.
	mu     *sync.Mutex
	leases []*lease
}

// Settle says how the attempt ended. Evicted is false only if it is certain that no pod
// went because of it: a lost answer is an eviction. Room of an attempt that evicted
// nobody is given back. A permit that is never settled counts as used, and so does one
// that is settled after its term of leadership. Settling it twice does nothing.
func (p *Permit) Settle(evicted bool) {
	if p == nil || p.mu == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.leases {
		l.settle(evicted)
	}
	p.leases = nil
}
