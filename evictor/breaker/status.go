package breaker

import (
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// terms are what the spec of a policy or an approval allows.
type terms struct {
	generation int64
	// limit is nil for a policy without a breaker. That of an approval has no window, but counts over all time.
	limit *eviction.Breaker
	// expiry is the end of an approval, by the clock of the API server.
	expiry time.Time
}

// decode returns the state and the terms of a policy or an approval. The time of the API server is
// server, and that of this machine local.
func decode(object client.Object, server, local time.Time) (s state, t terms) {
	switch o := object.(type) {
	case *v1alpha1.EvictionPolicy:
		t.generation = o.Generation
		t.limit = eviction.Compile([]v1alpha1.EvictionPolicy{*o}).All()[0].Breaker
		if o.Status.Breaker != nil {
			s = stateOf(o.Status.Breaker, server, local)
		}
	case *v1alpha1.EvictionApproval:
		t.limit, t.expiry = &eviction.Breaker{MaxPods: &o.Spec.MaxPods}, ExpiryOf(o)
		s.id = o.Status.ReleaseID
		if o.Status.Released > 0 {
			s.add(grant{pods: int(o.Status.Released)})
		}
	}
	return s, t
}

func stateOf(status *v1alpha1.EvictionBreakerStatus, server, local time.Time) state {
	s := state{generation: status.Generation, limit: int(status.Limit), id: status.WriteID}
	if status.Tripped != nil {
		s.tripped = status.Tripped.Time
	}
	for _, g := range status.Granted {
		if g.Pods > 0 { // Otherwise another writer added it, and it grants nothing.
			s.add(grant{until: g.Until.Time, end: local.Add(g.Until.Sub(server)), pods: int(g.Pods)})
		}
	}
	return s
}

// encode writes the state into the status of a policy or an approval.
func (s *state) encode(object client.Object, server time.Time) {
	switch o := object.(type) {
	case *v1alpha1.EvictionPolicy:
		o.Status.Breaker = s.status()
	case *v1alpha1.EvictionApproval:
		o.Status.Released, o.Status.ReleaseID = toInt32(s.pods()), s.id
		if o.Status.UsedAt == nil {
			o.Status.UsedAt = new(metav1.NewTime(server))
		}
	}
}

// status returns the status of the breaker; nil for an empty state.
func (s *state) status() *v1alpha1.EvictionBreakerStatus {
	if s.empty() {
		return nil
	}
	status := &v1alpha1.EvictionBreakerStatus{WriteID: s.id, Generation: s.generation, Limit: toInt32(s.limit)}
	if !s.tripped.IsZero() {
		status.Tripped = new(metav1.NewMicroTime(s.tripped))
	}
	for _, g := range s.grants {
		status.Granted = append(status.Granted, v1alpha1.BreakerGrant{Until: metav1.NewMicroTime(g.until), Pods: toInt32(g.pods)})
	}
	return status
}

func toInt32(n int) int32 { return int32(min(n, math.MaxInt32)) } //nolint:gosec // It is bounded.
