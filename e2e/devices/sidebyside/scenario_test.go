package sidebyside

import (
	"slices"
	"time"
)

// scenario is a story of tainted devices and what is to come of it.
type scenario struct {
	name string
	// rules are what it shows, by their IDs in docs/parity.md.
	rules string
	play  func(s *stage)
	// want is what comes of it with Kubernetes' own evictor.
	want outcome
	// differs is the fault of Kubernetes by which Tollgate's outcome is another one,
	// and tollgate is that outcome.
	differs  string
	tollgate outcome
	// alone is for a scenario that would disturb the others.
	alone bool
}

// expected returns what is to come of the scenario with an evictor.
func (s *scenario) expected(tollgate bool) outcome {
	if tollgate && s.differs != "" {
		return s.tollgate
	}
	return s.want
}

const (
	// soon is within the first period, and later in the second one; a toleration of
	// later seconds runs out there.
	soon  = 4 * time.Second
	later = 12 * time.Second
	// end is when the outcome is read: the condition of a rule may be ten seconds
	// behind an eviction.
	end = 31 * time.Second
	// endAlone is the same where all is done at once.
	endAlone = 16 * time.Second

	laterSeconds = int64(later / time.Second)
	hour         = int64(time.Hour / time.Second)
)

// scenarios returns all of them.
func scenarios() []scenario {
	return slices.Concat(selection(), effects(), tolerations(), times(), ruleChanges(), sliceChanges(), claims(), podStates(), groups())
}
