package taint

import (
	"time"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// TTL returns how long after its time a taint is to be removed, the shortest of all
// policies that govern it, and the name of the one that says so. What a policy
// registers stays, which the caller knows of the node (Register).
func (s *Set) TTL(taint Taint) (ttl time.Duration, by string, ok bool) {
	for _, position := range s.candidates([]Write{{Operation: v1alpha1.TaintRemove, Old: taint}}) {
		c := s.Policies[position]
		if c.ttl > 0 && (!ok || c.ttl < ttl) && c.governs(taint) {
			ttl, by, ok = c.ttl, c.name, true
		}
	}
	return ttl, by, ok
}
