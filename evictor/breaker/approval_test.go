package breaker

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// tripped runs a test with a breaker that has let 2 pods go and holds the rest. The
// taint has stood for a minute.
func tripped(t *testing.T, test func(t *testing.T, s *store, r *replica)) {
	t.Helper()
	led(t, bounded(2, time.Hour), func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.locked(func() { r.standing = tracker.Taint{Key: "broken", TimeAdded: time.Now()} })
		settle(time.Minute)
		r.goes(t, 2, "p")
		r.locked(func() { r.held[uidP] = 1000 })
		test(t, s, r)
	})
}

func pods(n int32) func(*v1alpha1.EvictionApproval) {
	return func(a *v1alpha1.EvictionApproval) { a.Spec.MaxPods = n }
}

func TestJ01AnApprovalLetsPodsGoThatAreHeld(t *testing.T) {
	tripped(t, func(t *testing.T, s *store, r *replica) {
		t.Helper()
		s.approve("a", pods(7))
		settle(2 * time.Second)
		require.Equal(t, []types.UID{uidP}, r.released, "what is held is to be asked about again")
		before := s.status("p").Breaker
		r.goes(t, 7, "p")
		status := s.released("a")
		require.EqualValues(t, 7, status.Released)
		require.NotNil(t, status.UsedAt)
		require.Equal(t, before, s.status("p").Breaker, "it takes nothing from the window")
		r.retire(t)
		r.lead(t)
		r.goes(t, 0, "p")
	})
}

func TestReleasesAreWrittenBeforePodsGo(t *testing.T) {
	tripped(t, func(t *testing.T, s *store, r *replica) {
		t.Helper()
		s.approve("a", pods(5))
		settle(2 * time.Second)
		for gone := int32(1); gone <= 5; gone++ {
			require.NotNil(t, r.answer("p").Permit)
			require.GreaterOrEqual(t, s.released("a").Released, gone)
		}
	})
}

func TestWhichApprovalsCount(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.EvictionApproval)
		goes   int
	}{
		"one for this taint":   {func(*v1alpha1.EvictionApproval) {}, 1},
		"one for another node": {func(a *v1alpha1.EvictionApproval) { a.Spec.Node = "other" }, 0},
		"one for a rule of that name": {func(a *v1alpha1.EvictionApproval) {
			a.Spec.Node, a.Spec.DeviceTaintRule = "", "n"
		}, 0},
		"one for another key": {func(a *v1alpha1.EvictionApproval) { a.Spec.Taint.Key = "other" }, 0},
		"one that has expired": {func(a *v1alpha1.EvictionApproval) {
			a.CreationTimestamp = metav1.NewTime(time.Now().Add(-2 * time.Hour))
		}, 0},
		"one that is being deleted": {func(a *v1alpha1.EvictionApproval) { a.DeletionTimestamp = new(metav1.Now()) }, 0},
		"one that was used for this appearance of the taint": {func(a *v1alpha1.EvictionApproval) {
			a.Status.UsedAt = new(metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second)))
		}, 1},
		"one that was used for an earlier appearance": {func(a *v1alpha1.EvictionApproval) {
			a.Status.UsedAt = new(metav1.NewTime(time.Now().Add(-10 * time.Minute)))
		}, 0},
		"one that has let all its pods go": {func(a *v1alpha1.EvictionApproval) {
			a.Status.Released, a.Status.UsedAt = 1, new(metav1.Now())
		}, 0},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			tripped(t, func(t *testing.T, s *store, r *replica) {
				t.Helper()
				s.approve("a", test.change)
				settle(2 * time.Second)
				r.goes(t, test.goes, "p")
			})
		})
	}
}

func TestRoomOfAnApprovalThatNobodyUsedIsGrantedAgain(t *testing.T) {
	tripped(t, func(t *testing.T, s *store, r *replica) {
		t.Helper()
		s.approve("a", pods(1))
		settle(2 * time.Second)
		require.NotZero(t, r.Ask(newUID(), r.policies("p"), cause).Wait)
		synctest.Wait()
		require.EqualValues(t, 1, s.released("a").Released)
		s.mu.Lock()
		s.fault = func(bool) fault { return fault{refused: true} } // so that it is not given back at once
		s.mu.Unlock()
		time.Sleep(usableFor + time.Second)
		for range 100 {
			require.NotZero(t, r.Ask(newUID(), r.policies("p"), cause).Wait)
			time.Sleep(20 * time.Millisecond)
		}
		s.mu.Lock()
		s.fault = nil
		s.mu.Unlock()
		for begun := time.Now(); time.Since(begun) < 30*time.Second; time.Sleep(20 * time.Millisecond) {
			if answer := r.Ask(newUID(), r.policies("p"), cause); answer.Permit != nil {
				answer.Permit.Settle(true)
				r.goes(t, 0, "p")
				return
			}
		}
		t.Fatal("pods that ask all the time wait for ever")
	})
}

func TestAnApprovalIsNotForATaintThatComesBack(t *testing.T) {
	tripped(t, func(t *testing.T, s *store, r *replica) {
		t.Helper()
		s.approve("a", pods(10))
		settle(2 * time.Second)
		gone, _ := r.try(3, "p")
		require.Equal(t, 3, gone)
		settle(time.Minute)
		r.locked(func() { r.standing.TimeAdded = time.Now() })
		r.goes(t, 0, "p")
		require.EqualValues(t, 3, s.released("a").Released, "what was not used is given back")
	})
}

func TestNothingIsApprovedWhereTaintsAreNotFollowed(t *testing.T) {
	tripped(t, func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.options.Standing = func(tracker.Source, string) (first, last tracker.Taint, ok bool) { return first, last, false }
		s.approve("a", pods(10))
		settle(2 * time.Second)
		r.goes(t, 0, "p")
	})
}

func TestApprovalsAreUsedOneAfterTheOther(t *testing.T) {
	tripped(t, func(t *testing.T, s *store, r *replica) {
		t.Helper()
		s.approve("b", pods(3))
		settle(time.Second)
		s.approve("a", pods(3))
		settle(2 * time.Second)
		gone, _ := r.try(3, "p")
		require.Equal(t, 3, gone)
		require.Nil(t, s.released("a").UsedAt, "the older first")
		r.goes(t, 3, "p")
	})
}

// forPolicy returns a change that makes an approval one for an EvictionPolicy.
func forPolicy(name string, n int32) func(*v1alpha1.EvictionApproval) {
	return func(a *v1alpha1.EvictionApproval) {
		a.Spec = v1alpha1.EvictionApprovalSpec{EvictionPolicy: name, MaxPods: n, ExpiresAfter: metav1.Duration{Duration: time.Hour}}
	}
}

func TestJ01AnApprovalForAPolicyLetsPodsGoThatItsBreakerHolds(t *testing.T) {
	tripped(t, func(t *testing.T, s *store, r *replica) {
		t.Helper()
		s.approve("a", forPolicy("p", 7))
		settle(2 * time.Second)
		require.Equal(t, []types.UID{uidP}, r.released, "what is held is to be asked about again")
		before := s.status("p").Breaker
		r.goes(t, 7, "p")
		require.EqualValues(t, 7, s.released("a").Released)
		require.NotNil(t, s.released("a").UsedAt)
		require.Equal(t, before, s.status("p").Breaker, "it takes nothing from the window")
		r.retire(t)
		r.lead(t)
		r.goes(t, 0, "p")
	})
}

func TestAnApprovalForAPolicyNeedsNoTaintThatStands(t *testing.T) {
	tripped(t, func(t *testing.T, s *store, r *replica) {
		t.Helper()
		r.options.Standing = func(tracker.Source, string) (first, last tracker.Taint, ok bool) { return first, last, false }
		s.approve("a", forPolicy("p", 3))
		settle(2 * time.Second)
		r.goes(t, 3, "p")
	})
}

func TestAnApprovalForAPolicyIsForNoOther(t *testing.T) {
	for sentence, test := range map[string]struct {
		other  func(*v1alpha1.EvictionPolicy)
		change func(*v1alpha1.EvictionApproval)
		goes   int
	}{
		"the breaker of the other policy has room":             {bounded(100, time.Hour), forPolicy("p", 5), 5},
		"the breaker of the other policy holds after three":    {bounded(3, time.Hour), forPolicy("p", 5), 3},
		"the approval is for the other policy, which has room": {bounded(100, time.Hour), forPolicy("q", 5), 0},
		"the approval has expired": {bounded(100, time.Hour), func(a *v1alpha1.EvictionApproval) {
			forPolicy("p", 5)(a)
			a.CreationTimestamp = metav1.NewTime(time.Now().Add(-2 * time.Hour))
		}, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			tripped(t, func(t *testing.T, s *store, r *replica) {
				t.Helper()
				s.change("q", test.other)
				r.PoliciesChanged()
				s.approve("a", test.change)
				settle(2 * time.Second)
				r.goes(t, test.goes, "p", "q")
				if test.goes > 0 {
					require.Equal(t, test.goes, granted(s.status("q").Breaker), "the other breaker counts them")
				}
				settle(usableFor + 2*time.Second)
				require.EqualValues(t, test.goes, s.released("a").Released, "what was not used is given back")
			})
		})
	}
}

// granted returns how many pods were given leave to go.
func granted(status *v1alpha1.EvictionBreakerStatus) int {
	n := 0
	for _, g := range status.Granted {
		n += int(g.Pods)
	}
	return n
}

func TestAnApprovalThatIsDeletedLetsNobodyGo(t *testing.T) {
	tripped(t, func(t *testing.T, s *store, r *replica) {
		t.Helper()
		s.approve("a", pods(10))
		settle(2 * time.Second)
		gone, _ := r.try(1, "p")
		require.Equal(t, 1, gone)
		s.mu.Lock()
		delete(s.approvals, "a")
		s.mu.Unlock()
		settle(usableFor + 2*time.Second)
		r.goes(t, 0, "p")
	})
}

// TestJ06AnApprovalReleasesNoMorePodsThanItSays has two leaders use an approval while requests and answers are
// lost.
func TestJ06AnApprovalReleasesNoMorePodsThanItSays(t *testing.T) {
	for _, seed := range histories(t) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random, h, s := newRandom(seed, 2), &history{}, newStore()
				s.change("p", bounded(1, 24*time.Hour))
				end := time.Now().Add(3 * time.Minute)
				var workers sync.WaitGroup
				var leading []*replica
				for range 2 {
					r := newReplica(s)
					r.locked(func() { r.standing, r.held[uidP] = tracker.Taint{Key: "broken", TimeAdded: time.Now()}, 100 })
					r.lead(t)
					leading = append(leading, r)
					for range 3 {
						workers.Go(func() { r.evict(random, end, h, []string{"p"}, time.Second) })
					}
				}
				settle(10 * time.Second)
				most := 1 + random.number(40)
				if seed%2 == 0 {
					s.approve("a", pods(int32(most)))
				} else {
					s.approve("a", forPolicy("p", int32(most)))
				}
				s.mu.Lock()
				s.fault = network(random, 30)
				s.mu.Unlock()
				settle(time.Minute)
				leading[0].retire(t)
				leading[0].lead(t)
				workers.Wait()
				s.mu.Lock()
				s.fault = nil
				s.mu.Unlock()
				settle(time.Minute)
				require.LessOrEqual(t, len(h.left), most+1)
				require.LessOrEqual(t, int(s.released("a").Released), most)
				for _, r := range leading {
					r.retire(t)
				}
			})
		})
	}
}

func TestAnApprovalNamesACause(t *testing.T) {
	rule := *cause
	rule.Source = tracker.Source{Kind: tracker.SourceRule, Name: "n-1", UID: "uid"}
	written := rule
	written.Patch = tracker.PatchRef{Name: "n", UID: "uid"}
	slice := *cause
	slice.Source.Kind = tracker.SourceSlice
	for _, test := range []struct {
		name   string
		spec   v1alpha1.EvictionApprovalSpec
		cause  tracker.Taint
		covers bool
	}{
		{"a node", v1alpha1.EvictionApprovalSpec{Node: "n"}, *cause, true},
		{"a slice of that name is not the node", v1alpha1.EvictionApprovalSpec{Node: "n"}, slice, false},
		{"a rule", v1alpha1.EvictionApprovalSpec{DeviceTaintRule: "n-1"}, rule, true},
		{"a patch is not the node of that name", v1alpha1.EvictionApprovalSpec{Node: "n"}, written, false},
		{"a patch", v1alpha1.EvictionApprovalSpec{ResourceSlicePatch: "n"}, written, true},
		{"a rule of a patch by itself", v1alpha1.EvictionApprovalSpec{DeviceTaintRule: "n-1"}, written, true},
		{"another patch", v1alpha1.EvictionApprovalSpec{ResourceSlicePatch: "m"}, written, false},
		{"a rule of no patch", v1alpha1.EvictionApprovalSpec{ResourceSlicePatch: "n"}, rule, false},
		{"a rule is not the patch of its name", v1alpha1.EvictionApprovalSpec{ResourceSlicePatch: "n-1"}, rule, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			tripped(t, func(t *testing.T, s *store, r *replica) {
				t.Helper()
				added := tracker.Taint{TimeAdded: time.Now()}
				r.options.Standing = func(tracker.Source, string) (first, last tracker.Taint, ok bool) { return added, added, true }
				s.approve("a", func(a *v1alpha1.EvictionApproval) {
					taint := a.Spec.Taint
					a.Spec = test.spec
					a.Spec.Taint, a.Spec.MaxPods, a.Spec.ExpiresAfter.Duration = taint, 2, time.Minute
				})
				settle(2 * time.Second)
				covers := func(cause tracker.Taint) bool { return r.Ask(newUID(), r.policies("p"), &cause).HeldBy == nil }
				require.Equal(t, test.covers, covers(test.cause))
				other := test.cause
				other.Key = "other"
				require.False(t, covers(other))
				settle(time.Minute - 2*time.Second - 1)
				require.Equal(t, test.covers, covers(test.cause))
				settle(1)
				require.False(t, covers(test.cause), "it has expired")
			})
		})
	}
}

// The rules of a patch are written one after the other. An approval that was used for the
// first of them is for those that come later, too.
func TestAnApprovalOfAPatchIsForAllItsRules(t *testing.T) {
	tripped(t, func(t *testing.T, s *store, r *replica) {
		t.Helper()
		start := time.Now()
		written := map[tracker.SourceKind]time.Time{tracker.SourceRule: start.Add(time.Minute), tracker.SourcePatch: start}
		r.options.Standing = func(source tracker.Source, _ string) (first, last tracker.Taint, ok bool) {
			return tracker.Taint{TimeAdded: written[source.Kind]}, tracker.Taint{}, true
		}
		of := *cause
		of.Source, of.Patch = tracker.Source{Kind: tracker.SourceRule, Name: "n-2"}, tracker.PatchRef{Name: "n", UID: "uid"}
		settle(2 * time.Minute)
		for name, change := range map[string]func(*v1alpha1.EvictionApproval){
			"of-the-rule":  func(a *v1alpha1.EvictionApproval) { a.Spec.Node, a.Spec.DeviceTaintRule = "", "n-2" },
			"of-the-patch": func(a *v1alpha1.EvictionApproval) { a.Spec.Node, a.Spec.ResourceSlicePatch = "", "n" },
		} {
			s.approve(name, func(a *v1alpha1.EvictionApproval) {
				change(a)
				a.Spec.MaxPods = 5
				a.Status.UsedAt = new(metav1.NewTime(start))
			})
		}
		require.NotNil(t, r.Ask(newUID(), r.policies("p"), &of).HeldBy, "nothing has been listed yet")
		settle(5 * time.Second)
		require.Positive(t, r.Ask(newUID(), r.policies("p"), &of).Wait)
		settle(time.Second)
		answer := r.Ask(newUID(), r.policies("p"), &of)
		require.NotNil(t, answer.Permit)
		answer.Permit.Settle(true)
		require.Zero(t, s.released("of-the-rule").Released, "that one was used for an earlier taint of the rule")
		require.Positive(t, s.released("of-the-patch").Released)
		of.Patch.Name = "other"
		require.NotNil(t, r.Ask(newUID(), r.policies("p"), &of).HeldBy)
	})
}
