package evictor

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/ratelimit"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// spent is what breakers and paces have counted for a pod that they let go and that is still
// here, after attempts of which nobody knew whether they had worked. It leaves once, so it is
// counted once.
type spent struct {
	// ticket is what the last of these attempts took of the paces.
	ticket ratelimit.Ticket
	// counted is when the breakers of policies counted the pod, by UID.
	counted map[types.UID]instant
}

// unpaid returns those of the policies whose breakers have to be asked for a pod: each that
// has not counted it within its window. A breaker bounds how many leave within a window, so
// what it counted before says nothing of now.
func (s spent) unpaid(policies []*eviction.Policy, now instant) []*eviction.Policy {
	if len(s.counted) == 0 {
		return policies
	}
	return slices.DeleteFunc(slices.Clone(policies), func(policy *eviction.Policy) bool {
		counted, ok := s.counted[policy.UID]
		return ok && policy.Breaker != nil && within(policy.Breaker.Window, counted, now)
	})
}

// spend enters what an attempt has cost at now that may have worked.
func (b *book) spend(key tracker.Key, leave passage, now instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[key]
	if !ok {
		return
	}
	counted := maps.Clone(e.spent.counted)
	if counted == nil {
		counted = map[types.UID]instant{}
	}
	for _, policy := range leave.bound {
		counted[policy.UID] = now
	}
	e.spent = spent{ticket: leave.ticket, counted: counted}
}

// spent returns what a pod has cost already.
func (b *book) spent(key tracker.Key) spent {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok := b.entries[key]; ok {
		return e.spent
	}
	return spent{}
}
