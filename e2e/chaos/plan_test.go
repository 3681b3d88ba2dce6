package chaos

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// act is one thing that happens in a schedule.
type act struct {
	at time.Duration
	// fault says that it is something that goes wrong, and not what the workload does.
	fault bool
	what  string
	do    func(ctx context.Context, s *stage) error
}

// schedule is what happens, by the seed.
type schedule struct {
	seed   uint64
	length time.Duration
	random *rand.Rand
	acts   []act
	// policed schedules have EvictionPolicies.
	policed bool
}

// newSchedule makes the schedule of a seed. The same seed makes the same one.
func newSchedule(seed uint64, length time.Duration) *schedule {
	s := &schedule{seed: seed, length: length, random: rand.New(rand.NewPCG(seed, 1))}
	s.addWorkload()
	// In a third everything is as in Kubernetes.
	if s.policed = s.chance(0.67); s.policed {
		s.addPolicies()
	}
	s.addFaults()
	slices.SortStableFunc(s.acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
	return s
}

// add puts an act into the schedule.
func (s *schedule) add(at time.Duration, do func(ctx context.Context, s *stage) error, format string, args ...any) {
	s.acts = append(s.acts, act{at: at, what: fmt.Sprintf(format, args...), do: do})
}

// String lists what happens.
func (s *schedule) String() string {
	var text strings.Builder
	for _, a := range s.acts {
		fmt.Fprintf(&text, "%9s  %s\n", a.at.Round(time.Millisecond), a.what)
	}
	return text.String()
}

func (s *schedule) chance(p float64) bool { return s.random.Float64() < p }

// between returns a duration from low up to high.
func (s *schedule) between(low, high time.Duration) time.Duration {
	return low + time.Duration(s.random.Int64N(int64(high-low)))
}

func pick[T any](s *schedule, choices ...T) T { return choices[s.random.IntN(len(choices))] }
