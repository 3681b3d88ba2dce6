package breaker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

const uidP = types.UID("uid of p")

func TestJ01WhatIsAboveTheLimitIsHeld(t *testing.T) {
	led(t, bounded(50, 10*time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.goes(t, 50, "p")
		require.NotNil(t, s.status("p").Breaker.Tripped)
		require.EqualValues(t, 50, s.status("p").Breaker.Limit)
		require.Len(t, r.sentEvents(), 1)
		require.Contains(t, r.sentEvents()[0], "Warning BreakerTripped: 50 pods were let go within 10m0s")
		require.Contains(t, r.sentEvents()[0], "EvictionApproval")
	})
}

func TestLeaveIsWrittenBeforeAnybodyGoes(t *testing.T) {
	led(t, bounded(5, time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		for gone := 1; gone <= 5; gone++ {
			require.NotNil(t, r.answer("p").Permit)
			written := 0
			for _, g := range s.status("p").Breaker.Granted {
				written += int(g.Pods)
			}
			require.GreaterOrEqual(t, written, gone)
		}
	})
}

func TestJ05ARestartForgetsNothing(t *testing.T) {
	led(t, bounded(10, 10*time.Minute), func(t *testing.T, _ *store, r *replica) {
		t.Helper()
		gone, _ := r.try(6, "p")
		require.Equal(t, 6, gone)
		r.retire(t)
		settle(time.Minute)
		r.lead(t)
		gone, held := r.try(10, "p")
		require.LessOrEqual(t, gone, 4)
		require.Equal(t, 10-gone, held)
	})
}

func TestJ06TwoLeadersShareOneLimit(t *testing.T) {
	led(t, bounded(10, 10*time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		other := newReplica(s)
		other.lead(t)
		total := 0
		for range 20 {
			for _, r := range []*replica{r, other} {
				gone, _ := r.try(1, "p")
				total += gone
			}
		}
		require.Equal(t, 10, total)
		other.retire(t)
	})
}

func TestJ06WhatWasGrantedBeforeAnotherWroteIsNotUsed(t *testing.T) {
	led(t, bounded(10, 10*time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		synctest.Wait() // the status is read
		policies := r.policies("p")
		s.mu.Lock() // nothing is granted before all six have asked
		for range 6 {
			require.NotZero(t, r.Ask(newUID(), policies, cause).Wait)
		}
		s.mu.Unlock()
		synctest.Wait() // permits for six pods are written, and unused
		require.Len(t, s.status("p").Breaker.Granted, 1)
		require.EqualValues(t, 6, s.status("p").Breaker.Granted[0].Pods)
		s.change("p", func(p *v1alpha1.EvictionPolicy) {
			p.Spec.Breaker.MaxPods = new(int32(9)) // so that the status is read again
			p.Status.Breaker.WriteID = "of another"
			p.Status.Breaker.Granted[0].Pods = 8
		})
		r.goes(t, 1, "p")
	})
}

func TestALeaderThatWasFrozenUsesNoOldLeave(t *testing.T) {
	led(t, bounded(1, time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		synctest.Wait() // the status is read
		require.NotZero(t, r.Ask(newUID(), r.policies("p"), cause).Wait)
		synctest.Wait() // leave for one pod is written, and nobody has it yet
		require.Len(t, s.status("p").Breaker.Granted, 1)
		s.mu.Lock()
		s.fault = func(bool) fault { return fault{refused: true} }
		s.mu.Unlock()
		time.Sleep(usableFor)
		require.Nil(t, r.Ask(newUID(), r.policies("p"), cause).Permit)
		s.mu.Lock()
		s.fault = nil
		s.mu.Unlock()
		require.NotNil(t, r.answer("p").Permit, "it was given back and granted anew")
	})
}

func TestRoomOfAnAttemptThatEvictedNobodyIsGivenBack(t *testing.T) {
	led(t, bounded(1, time.Hour), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		for range 20 {
			answer := r.answer("p")
			require.NotNil(t, answer.Permit)
			require.NotZero(t, r.Ask(newUID(), r.policies("p"), cause).Wait, "it is not known yet whether there is room")
			answer.Permit.Settle(false)
			time.Sleep(3 * time.Second)
		}
		settle(time.Minute)
		require.Empty(t, s.status("p").Breaker, "what is not used is given back")
		require.Empty(t, r.sentEvents())
		r.goes(t, 1, "p")
	})
}

func TestTheBreakerReleasesWhenWhatIsHeldFits(t *testing.T) {
	led(t, bounded(10, time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.goes(t, 10, "p")
		r.locked(func() { r.held[uidP], r.settled = 10, false })
		settle(2 * time.Minute)
		require.NotNil(t, s.status("p").Breaker.Tripped, "not all pods have been looked at in this term")
		r.locked(func() { r.held[uidP], r.settled = 11, true })
		settle(10 * time.Minute)
		require.NotNil(t, s.status("p").Breaker.Tripped, "time alone lets nobody go")
		r.locked(func() { r.held[uidP] = 10 })
		settle(2 * time.Second)
		require.Empty(t, s.status("p").Breaker)
		require.Equal(t, []types.UID{uidP}, r.released)
		require.Contains(t, r.sentEvents()[1], "Normal BreakerReleased: What was held fits")
		r.goes(t, 10, "p")
	})
}

func TestTheBreakerHoldsUntilTheWindowHasRoomForAll(t *testing.T) {
	led(t, bounded(10, 10*time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.goes(t, 10, "p")
		r.locked(func() { r.held[uidP] = 3 })
		settle(9 * time.Minute)
		require.NotNil(t, s.status("p").Breaker.Tripped)
		settle(2 * time.Minute)
		require.Len(t, r.sentEvents(), 2, "three have room")
	})
}

func TestWhatChangesInThePolicyReleases(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.EvictionPolicy)
		// goes is how many go then; -1 for all.
		goes int
	}{
		"the limit is raised": {func(p *v1alpha1.EvictionPolicy) { p.Spec.Breaker.MaxPods = new(int32(15)) }, 5},
		"the window is shorter than what was let go is old": {
			func(p *v1alpha1.EvictionPolicy) {
				p.Spec.Breaker.Window.Duration, p.Spec.Breaker.MaxPods = 10*time.Second, new(int32(11))
			}, 11,
		},
		"the breaker is removed": {func(p *v1alpha1.EvictionPolicy) { p.Spec.Breaker = nil }, -1},
		"something else changes": {func(p *v1alpha1.EvictionPolicy) { p.Spec.Paused = true }, 0},
		"the limit is lowered":   {func(p *v1alpha1.EvictionPolicy) { p.Spec.Breaker.MaxPods = new(int32(3)) }, 0},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			led(t, bounded(10, 10*time.Minute), func(t *testing.T, s *store, r *replica) {
				t.Helper()
				r.goes(t, 10, "p")
				r.locked(func() { r.held[uidP] = 1000 })
				settle(time.Minute)
				s.change("p", test.change)
				r.PoliciesChanged()
				settle(5 * time.Second)
				if test.goes < 0 {
					require.Empty(t, s.status("p").Breaker)
					gone, _ := r.try(30, "p")
					require.Equal(t, 30, gone)
					return
				}
				require.Equal(t, test.goes > 0, len(r.sentEvents()) == 2, r.sentEvents())
				r.goes(t, test.goes, "p")
				settle(time.Minute)
				require.NotNil(t, s.status("p").Breaker.Tripped)
			})
		})
	}
}

func TestALimitThatWasRaisedWhileNobodyLedReleases(t *testing.T) {
	led(t, bounded(10, 10*time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.goes(t, 10, "p")
		r.locked(func() { r.held[uidP] = 1000 })
		r.retire(t)
		s.change("p", bounded(12, 10*time.Minute))
		r.lead(t)
		synctest.Wait() // Who asks while the release is being written is still held.
		r.goes(t, 2, "p")
	})
}

func TestALimitThatIsLoweredCountsAtOnce(t *testing.T) {
	led(t, bounded(100, 10*time.Minute), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		synctest.Wait() // the status is read
		for range 30 {
			r.Ask(newUID(), r.policies("p"), cause)
		}
		settle(time.Second)
		granted := 0
		for _, g := range s.status("p").Breaker.Granted {
			granted += int(g.Pods)
		}
		// Who asks when leave has been written has it at once, and asks for no more.
		require.GreaterOrEqual(t, granted, 15, "more than the limit is going to be")
		s.change("p", bounded(5, 10*time.Minute))
		// What was granted and not used counts until it is given back, so it may be fewer.
		gone, held := r.try(6, "p")
		require.LessOrEqual(t, gone, 5)
		require.Equal(t, 6, gone+held)
	})
}

func TestAShareOfTheCluster(t *testing.T) {
	led(t, func(p *v1alpha1.EvictionPolicy) {
		p.Spec.Breaker = &v1alpha1.EvictionBreaker{MaxPercent: new(int32(20))}
		p.Spec.Breaker.Window.Duration = time.Hour
	}, func(t *testing.T, _ *store, r *replica) {
		t.Helper()
		r.locked(func() { r.live = 100 })
		gone := 0
		for range 40 {
			n, _ := r.try(1, "p")
			gone += n
			r.locked(func() { r.live -= n })
		}
		require.Equal(t, 20, gone, "the share does not shrink while they leave")
	})
}

func TestSeveralBreakersAllHaveToLetAPodGo(t *testing.T) {
	led(t, bounded(10, time.Hour), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		s.change("wide", bounded(15, time.Hour))
		s.change("second", bounded(10, time.Hour))
		r.goes(t, 10, "p", "wide")
		require.Equal(t, "p", r.answer("p", "wide").HeldBy.Name)
		r.goes(t, 5, "second", "wide")
		require.Equal(t, "wide", r.answer("second", "wide").HeldBy.Name)
		settle(time.Minute)
		left := 0
		for _, g := range s.status("second").Breaker.Granted {
			left += int(g.Pods)
		}
		require.Equal(t, 5, left, "what the other did not let go takes no room")
	})
}

func TestAPolicyThatIsCreatedAnewCountsAnew(t *testing.T) {
	led(t, bounded(3, time.Hour), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.goes(t, 3, "p")
		s.remove("p")
		s.change("p", func(p *v1alpha1.EvictionPolicy) {
			bounded(3, time.Hour)(p)
			p.UID = "another"
		})
		r.PoliciesChanged()
		settle(time.Minute)
		again := r.options.Policies().All()
		answer := r.Ask(newUID(), again, cause)
		time.Sleep(answer.Wait)
		require.NotNil(t, r.Ask(newUID(), again, cause).Permit)
		require.Len(t, r.ledgers, 1)
	})
}

func TestAPolicyThatIsGoneLetsNobodyGoWhileItIsJudgedBy(t *testing.T) {
	led(t, bounded(3, time.Hour), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.locked(func() { r.old = s.set() })
		s.remove("p")
		for range 100 {
			answer := r.Ask(newUID(), r.policies("p"), cause)
			require.NotZero(t, answer.Wait)
			time.Sleep(answer.Wait)
		}
	})
}

func TestI02WritesThatFailAreTriedAgain(t *testing.T) {
	led(t, bounded(5, time.Hour), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		s.mu.Lock()
		s.fault = func(bool) fault { return fault{refused: true} }
		s.mu.Unlock()
		r.Ask(newUID(), r.policies("p"), cause)
		settle(10 * time.Minute)
		s.mu.Lock()
		require.Less(t, s.reads+s.writes, 10*60/4, "it asks ever more rarely")
		s.fault = nil
		s.mu.Unlock()
		settle(retryMax + time.Second)
		r.goes(t, 5, "p")
	})
}

func TestI04AnAnswerThatIsLostIsReadAgain(t *testing.T) {
	for sentence, lost := range map[string]fault{
		"the write went through":          {lost: true},
		"the write was refused":           {refused: true},
		"the write goes through later":    {lost: true, late: 20 * time.Millisecond},
		"the write goes through too late": {lost: true, late: 30 * time.Second},
	} {
		t.Run(sentence, func(t *testing.T) {
			led(t, bounded(3, time.Hour), func(t *testing.T, s *store, r *replica) {
				t.Helper()
				broken := 2
				s.mu.Lock()
				s.fault = func(write bool) fault {
					if write && broken > 0 {
						broken--
						return lost
					}
					return fault{}
				}
				s.mu.Unlock()
				r.goes(t, 3, "p")
				settle(time.Minute)
				r.goes(t, 0, "p")
			})
		})
	}
}

func TestAFloodNeedsFewWrites(t *testing.T) {
	led(t, bounded(100_000, time.Hour), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		gone := make(chan struct{}, 100_000)
		end := time.Now().Add(10 * time.Second)
		for range 50 {
			go func() {
				for time.Now().Before(end) {
					if answer := r.answer("p"); answer.Permit != nil {
						time.Sleep(20 * time.Millisecond)
						answer.Permit.Settle(true)
						gone <- struct{}{}
					}
				}
			}()
		}
		settle(11 * time.Second)
		require.Greater(t, len(gone), 5000, "500 pods a second")
		s.mu.Lock()
		require.LessOrEqual(t, s.writes, 45, "four writes a second")
		s.mu.Unlock()
		settle(time.Minute)
		counted := 0
		for _, g := range s.status("p").Breaker.Granted {
			counted += int(g.Pods)
		}
		require.Equal(t, len(gone), counted, "what was not used is given back")
	})
}

func TestManyWhoWaitDoNotAskAllTheTime(t *testing.T) {
	led(t, bounded(1, time.Hour), func(t *testing.T, _ *store, r *replica) {
		t.Helper()
		answer := r.answer("p") // all there is, and nobody knows what becomes of it
		require.NotNil(t, answer.Permit)
		asks := 0
		var longest time.Duration
		for range 5000 {
			wait := r.Ask(newUID(), r.policies("p"), cause).Wait
			require.NotZero(t, wait)
			longest, asks = max(longest, wait), asks+1
		}
		require.GreaterOrEqual(t, longest, time.Second)
		answer.Permit.Settle(true)
	})
}

func TestH05AClockOfTheServerThatJumpsLetsNobodyGo(t *testing.T) {
	for sentence, jump := range map[string]time.Duration{"forward": 2 * time.Hour, "backward": -2 * time.Hour} {
		t.Run(sentence, func(t *testing.T) {
			led(t, bounded(5, 10*time.Minute), func(t *testing.T, _ *store, r *replica) {
				t.Helper()
				r.goes(t, 5, "p")
				r.locked(func() { r.ahead, r.held[uidP] = jump, 100 })
				settle(5 * time.Minute)
				r.goes(t, 0, "p")
				r.locked(func() { r.ahead = 0 })
				settle(5 * time.Minute)
				r.locked(func() { r.held[uidP] = 5 })
				settle(time.Minute)
				r.goes(t, 5, "p")
			})
		})
	}
}

func TestOneLessThanTheWholeDay(t *testing.T) {
	led(t, bounded(1, 24*time.Hour), func(t *testing.T, _ *store, r *replica) {
		t.Helper()
		r.goes(t, 1, "p")
		r.locked(func() { r.held[uidP] = 1 })
		settle(time.Hour)
		r.retire(t) // A tripped breaker is checked every second, which takes the test long.
		settle(23*time.Hour - 4*time.Minute)
		r.lead(t)
		settle(2 * time.Minute)
		r.goes(t, 0, "p")
		settle(3 * time.Minute)
		r.goes(t, 1, "p")
	})
}
