package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
)

// addFaults adds what goes wrong: a few things at one time.
func (s *schedule) addFaults() {
	for at := 2 * time.Second; at < s.length; at += s.between(0, 4*time.Second) {
		s.addFault(at)
	}
}

// fault adds something that goes wrong for a while.
func (s *schedule) fault(at, length time.Duration, begin, end func(ctx context.Context, st *stage) error, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	s.acts = append(s.acts, act{at: at, fault: true, what: "BEGIN " + what, do: begin})
	if end != nil {
		s.acts = append(s.acts, act{at: min(at+length, s.length), fault: true, what: "END   " + what, do: end})
	}
}

func (s *schedule) addFault(at time.Duration) {
	who := pick(s, []int{0}, []int{1}, []int{0, 1})
	switch s.random.IntN(12) {
	case 0:
		s.addKill(at, who[0])
	case 1:
		s.addFreeze(at, who[0])
	case 2:
		s.addStep(at)
	case 3, 4:
		s.addFrozenWatches(at, who)
	case 5:
		s.addOutage(at, who)
	case 6:
		s.addRestart(at, who[0])
	default:
		s.inject(at, s.between(time.Second, 7*time.Second), who, s.anyFault())
	}
}

// addKill adds a crash, after which the replica is started again.
func (s *schedule) addKill(at time.Duration, who int) {
	length := s.between(100*time.Millisecond, 4*time.Second)
	s.fault(at, length,
		func(ctx context.Context, st *stage) error { return st.replicas[who].kill(ctx) },
		func(ctx context.Context, st *stage) error { return st.replicas[who].start(ctx) },
		"kill replica %d (for %s)", who, length.Round(time.Millisecond))
}

// addRestart adds that a replica is asked to end, and started again.
func (s *schedule) addRestart(at time.Duration, who int) {
	s.fault(at, 0, func(ctx context.Context, st *stage) error {
		if err := st.replicas[who].terminate(ctx); err != nil {
			return err
		}
		return st.replicas[who].start(ctx)
	}, nil, "restart replica %d", who)
}

// addFreeze adds that a replica stands still, for less or longer than its lease.
func (s *schedule) addFreeze(at time.Duration, who int) {
	length := s.between(500*time.Millisecond, 9*time.Second)
	s.fault(at, length,
		func(_ context.Context, st *stage) error { return st.replicas[who].freeze() },
		func(_ context.Context, st *stage) error { return st.replicas[who].thaw() },
		"stop replica %d (for %s)", who, length.Round(time.Millisecond))
}

// addStep adds that the clock of the API server is set, as all replicas see it.
func (s *schedule) addStep(at time.Duration) {
	by := s.between(-20*time.Second, 20*time.Second)
	s.fault(at, 0, func(_ context.Context, st *stage) error {
		// What is noted first is what may be known: the replicas learn of it after.
		st.note(by)
		for _, r := range st.replicas {
			r.step(by)
		}
		return nil
	}, nil, "the clock of the API server is set by %s", by.Round(time.Millisecond))
}

// note tells the recorder how far the clock is ahead.
func (st *stage) note(by time.Duration) {
	st.mutex.Lock()
	defer st.mutex.Unlock()
	st.offset += by
	st.recorder.Step(st.offset)
}

// watched is what carries taints and what they are about. What policies say comes by
// watches too, and nothing that could be read instead bounds how old that is.
var watched = []string{"nodes", "pods", "resourceclaims", "resourceslices", "devicetaintrules"}

// addFrozenWatches adds that watches stay open and say nothing, or are late.
func (s *schedule) addFrozenWatches(at time.Duration, who []int) {
	match := faultproxy.Match{Resources: pick(s, watched, []string{"nodes"}, []string{"pods"}, []string{"devicetaintrules", "resourceslices"}, []string{"resourceclaims"})}
	length, lag := s.between(time.Second, 9*time.Second), time.Duration(0)
	if s.chance(0.4) {
		lag = s.between(200*time.Millisecond, 5*time.Second)
	}
	var ends []func()
	s.fault(at, length, func(_ context.Context, st *stage) error {
		for _, i := range who {
			st.replicas[i].with(func(p *faultproxy.Proxy) {
				if lag > 0 {
					ends = append(ends, p.Lag(match, lag))
				} else {
					ends = append(ends, p.Freeze(match))
				}
			})
		}
		return nil
	}, func(context.Context, *stage) error {
		for _, end := range ends {
			end()
		}
		return nil
	}, "watches of %v of replicas %v are late by %s (0s: frozen, for %s)", match.Resources, who, lag.Round(time.Millisecond), length.Round(time.Millisecond))
}

// addOutage adds that replicas do not reach the API server, whose connections end.
func (s *schedule) addOutage(at time.Duration, who []int) {
	fault := faultproxy.Fault{Lose: faultproxy.LoseRequest, Silent: s.chance(0.5)}
	if s.chance(0.4) {
		fault.Match.Resources = []string{"leases"}
	}
	s.inject(at, s.between(500*time.Millisecond, 6*time.Second), who, fault)
	if len(fault.Match.Resources) > 0 {
		return
	}
	s.fault(at, 0, func(_ context.Context, st *stage) error {
		for _, i := range who {
			st.replicas[i].with(func(p *faultproxy.Proxy) { go p.Disconnect() })
		}
		return nil
	}, nil, "connections of replicas %v end", who)
}

// anyFault returns a fault of requests.
func (s *schedule) anyFault() faultproxy.Fault {
	fault := faultproxy.Fault{Rate: pick(s, 0.1, 0.3, 0.6, 0)}
	fault.Match = pick(s,
		faultproxy.Match{},
		faultproxy.Match{Verbs: []string{"delete", "create", "patch", "update"}},
		faultproxy.Match{Resources: []string{"pods"}, Verbs: []string{"delete"}},
		faultproxy.Match{Resources: []string{"pods", "pods/status", "pods/eviction"}},
		faultproxy.Match{Resources: []string{"devicetaintrules", "devicetaintrules/status", "nodes", "resourceslices"}},
		faultproxy.Match{Resources: []string{"events"}},
		faultproxy.Match{Verbs: []string{"get", "list"}},
	)
	switch s.random.IntN(6) {
	case 0:
		fault.Delay = s.between(20*time.Millisecond, time.Second)
	case 1:
		fault.DelayAnswer = s.between(20*time.Millisecond, time.Second)
	case 2:
		fault.Lose, fault.Silent = faultproxy.LoseRequest, s.chance(0.3)
	case 3:
		fault.Lose, fault.Silent = faultproxy.LoseAnswer, s.chance(0.3)
	case 4:
		fault.Status = pick(s, 429, 500, 503, 504)
		fault.RetryAfter = pick(s, 0, time.Second, 2*time.Second)
	default:
		fault.Truncate = 1 + s.random.Int64N(200)
	}
	return fault
}

func (s *schedule) inject(at, length time.Duration, who []int, fault faultproxy.Fault) {
	var ends []func()
	s.fault(at, length, func(_ context.Context, st *stage) error {
		for _, i := range who {
			st.replicas[i].with(func(p *faultproxy.Proxy) { ends = append(ends, p.Inject(fault)) })
		}
		return nil
	}, func(context.Context, *stage) error {
		for _, end := range ends {
			end()
		}
		return nil
	}, "%s for replicas %v (for %s)", describe(fault), who, length.Round(time.Millisecond))
}

func describe(f faultproxy.Fault) string {
	text := fmt.Sprintf("verbs %v resources %v rate %v:", f.Match.Verbs, f.Match.Resources, f.Rate)
	switch {
	case f.Delay > 0:
		return text + " late by " + f.Delay.Round(time.Millisecond).String()
	case f.DelayAnswer > 0:
		return text + " answered late by " + f.DelayAnswer.Round(time.Millisecond).String()
	case f.Lose == faultproxy.LoseRequest:
		return fmt.Sprintf("%s lost (silently: %t)", text, f.Silent)
	case f.Lose == faultproxy.LoseAnswer:
		return fmt.Sprintf("%s answer lost (silently: %t)", text, f.Silent)
	case f.Status != 0:
		return fmt.Sprintf("%s answered with %d (retry after %s)", text, f.Status, f.RetryAfter)
	}
	return fmt.Sprintf("%s cut off after %d bytes", text, f.Truncate)
}
