package evictor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/evictor/rulestatus"
	"github.com/tollgate-dev/tollgate/tracker"
)

// ruleStatus writes the status of the rules of a world, and keeps what it said.
type ruleStatus struct {
	w       *world
	stop    context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	said []string
}

// Apply has the API server take conditions in, and the watch tell of them.
func (s *ruleStatus) Apply(_ context.Context, name string, _ types.UID, conditions []metav1.Condition) (tracker.Rule, error) {
	s.w.api.mu.Lock()
	rule := s.w.api.objects["rule:"+name].(*resourcev1.DeviceTaintRule).DeepCopy()
	s.w.api.mu.Unlock()
	rule.Status.Conditions = conditions
	stored := s.w.api.store(rule).(*resourcev1.DeviceTaintRule)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range conditions {
		if c.Type == resourcev1.DeviceTaintConditionEvictionInProgress {
			s.said = append(s.said, string(c.Status)+" "+c.Reason+": "+c.Message)
		}
	}
	return tracker.RuleOf(stored), nil
}

// requireDoneLast fails unless the rule was said to be done when that many pods were
// counted, and not before.
func (s *ruleStatus) requireDoneLast(pods int) {
	s.w.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, said := range s.said {
		require.Equal(s.w.t, i == len(s.said)-1, strings.HasPrefix(said, "False "), "%q", s.said)
	}
	require.Equal(s.w.t, fmt.Sprintf("False Completed: %d pods evicted so far.", pods), s.said[len(s.said)-1])
}

// startWithStatus starts an evictor, and what writes the status of rules beside it.
func (w *world) startWithStatus() *ruleStatus {
	w.t.Helper()
	s := &ruleStatus{w: w}
	var told atomic.Pointer[rulestatus.Controller]
	w.options.RulesChanged = func(rules []string) {
		if status := told.Load(); status != nil {
			status.Add(rules...)
		}
	}
	w.start()
	base := controller.Base{Clock: w.options.Clock, Local: w.options.Local, Leads: func() bool { return true }, Timeout: 10 * time.Second}
	status := rulestatus.New(base, rulestatus.Options{
		Objects: rulestatus.Objects{Kind: rulestatus.KindRule, Tracker: w.tracker, Applier: s, Written: func(*tracker.Rule) bool { return true }},
		Evictor: rulestatus.Evictor{
			Decide: func(situation tracker.Situation) bool {
				return w.options.Rules.Decide(time.Now(), situation).Verdict == decide.EvictAt
			},
			Evicted: w.evictor.EvictedBy, Unanswered: w.evictor.Unanswered, Forget: w.evictor.Forget,
			Held: w.evictor.HeldFor, PodsChanged: func([]tracker.Key) {},
		},
		Synced: func() bool { return true }, Metrics: rulestatus.NewMetrics(prometheus.NewPedanticRegistry()),
	})
	told.Store(status)
	ctx, cancel := context.WithCancel(w.t.Context())
	s.stop = cancel
	s.running.Go(func() {
		if err := status.Start(ctx); err != nil {
			w.t.Errorf("rule status returned %v", err)
		}
	})
	synctest.Wait()
	return s
}

// end stops what writes the status.
func (s *ruleStatus) end() {
	s.stop()
	s.running.Wait()
}

// crowd sets n pods with a device each, that tolerate the taint for some seconds, and
// returns their names.
func crowd(w *world, n int, tolerate int64) []string {
	var names []string
	for i := range n {
		name := fmt.Sprintf("p%d", i)
		w.set(newClaim(name, "gpu-0", tolerated("gpu", tolerate), name))
		w.setPod(using(newPod(name, "n"), name))
		names = append(names, name)
	}
	return names
}

// lateAnswers carries out what is asked for at once, and answers later: the watch is
// faster. The fake client itself cannot be slow: it answers one request at a time.
type lateAnswers struct {
	act.Effector

	// answer returns what comes instead of an answer.
	answer func(what act.Order, done act.Attempt, err error) (act.Attempt, error)
}

func (l lateAnswers) Evict(ctx context.Context, what act.Order) (act.Attempt, error) {
	done, err := l.Effector.Evict(ctx, what)
	return l.answer(what, done, err)
}

func TestDE77RuleWaitsForAnswers(t *testing.T) {
	t.Parallel()
	for sentence, lost := range map[string]error{
		"DE-77 a rule is not done before the answers to its deletions are there, which the watch is faster than": nil,
		"DE-77 a rule is not done before it is known what came of deletions whose answers are lost":              errLost,
	} {
		for name, graceful := range map[string]bool{"on their way out": true, "gone": false} {
			t.Run(sentence+", of pods that are "+name, func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					w.api.graceful = graceful
					crowd(w, 20, 6)
					s := w.startWithStatus()
					w.evictor.effector = lateAnswers{w.evictor.effector, func(_ act.Order, done act.Attempt, err error) (act.Attempt, error) {
						// From before the status may be written again until after that.
						time.Sleep(seconds(8))
						if err == nil && lost != nil {
							return act.Attempt{Sent: true}, lost
						}
						return done, err
					}}
					w.set(newRule("r", "", deviceTaint("gpu")))
					w.pass(seconds(30))
					s.end()
					s.requireDoneLast(20)
					require.Empty(w.t, w.evictor.Unanswered("r-rule-uid"))
				})
			})
		}
	}
}

// TestDE77EveryDeletionCountsOnce has answers come late or not at all, requests refused,
// pods deleted by others and let go by their kubelets, all while the watch lags now and
// then. What the API server accepted from the evictor is counted, and nothing else.
func TestDE77EveryDeletionCountsOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				a := &accepted{world: w, random: rand.New(rand.NewPCG(seed, 0)), pods: map[string]int{}}
				a.play()
			})
		})
	}
}

// accepted counts the deletions that the API server accepted from the evictor, by the
// names of the pods.
type accepted struct {
	*world

	mu     sync.Mutex
	random *rand.Rand
	pods   map[string]int
}

func (a *accepted) chance(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.random.IntN(n)
}

func (a *accepted) play() {
	names := crowd(a.world, 30, 3)
	a.api.setFaults(func(req request) error {
		if !is("delete pods")(req) {
			return nil
		}
		// None of these says that the pod may be deleted.
		return []error{nil, nil, nil, nil, errBusy, errConflict, errDenied}[a.chance(7)]
	}, nil)
	s := a.startWithStatus()
	a.evictor.effector = lateAnswers{a.evictor.effector, a.answer}
	a.set(newRule("r", "", deviceTaint("gpu")))
	for range 200 {
		a.pass(time.Duration(a.chance(200)) * time.Millisecond)
		a.disturb("default/" + names[a.chance(len(names))])
	}
	a.api.setLag(false)
	a.pass(5 * time.Minute)
	s.end()
	require.Empty(a.t, a.evictor.Unanswered("r-rule-uid"))
	for name, times := range a.pods {
		require.Equal(a.t, 1, times, "%s was deleted so often", name)
	}
	require.Equal(a.t, len(a.pods), a.evictor.EvictedBy("r-rule-uid"))
	s.requireDoneLast(len(a.pods))
}

// answer counts what was accepted, and lets some time pass. Some answers are lost.
func (a *accepted) answer(what act.Order, done act.Attempt, err error) (act.Attempt, error) {
	if err != nil || done.Outcome != act.Evicted {
		return done, err
	}
	a.mu.Lock()
	a.pods[what.Pod.Name]++
	a.mu.Unlock()
	time.Sleep(time.Duration(a.chance(12_000)) * time.Millisecond)
	if a.chance(3) == 0 {
		return act.Attempt{Sent: true}, errLost
	}
	return done, nil
}

// disturb has somebody else do something, perhaps to a pod.
func (a *accepted) disturb(key string) {
	pod := a.api.pod(key)
	switch what := a.chance(10); {
	case what < 2:
		a.api.setLag(what == 0)
	case pod == nil:
	case pod.DeletionTimestamp != nil:
		a.api.remove(key)
	case what == 2:
		a.update(key, func(pod *corev1.Pod) { pod.DeletionTimestamp = new(metav1.Now()) })
	case what == 3:
		a.update(key, func(pod *corev1.Pod) { pod.Status.Message = "changed" })
	}
}

func TestBookUnanswered(t *testing.T) {
	t.Parallel()
	a := tracker.Key{Name: "a"}
	const r, s = types.UID("r-rule-uid"), types.UID("s-rule-uid")

	t.Run("DE-77 a pod is unanswered from the request on until it is known what came of it", func(t *testing.T) {
		t.Parallel()
		for sentence, end := range map[string]func(b *state){
			"it was evicted":           func(b *state) { b.close(a, act.Evicted, nil) },
			"somebody else deleted it": func(b *state) { b.close(a, act.Terminating, nil) },
			"it need not leave":        func(b *state) { b.close(a, act.Unfinished, nil) },
			"the request was refused":  func(b *state) { b.fail(a, act.Denied, act.Attempt{Sent: true}) },
			"the lease was lost":       func(b *state) { b.empty() },
			"nothing was asked for":    func(b *state) { b.fail(a, act.Timeout, act.Attempt{Unmarkable: true}) },
		} {
			b := emptyState()
			b.try(a, act.Delete)
			require.Empty(t, b.unanswered, "there is no such eviction")
			b.plan(a, becauseOf("r"))
			require.Empty(t, b.unansweredFor(r))
			b.try(a, act.Delete)
			require.Equal(t, []tracker.Key{a}, b.unansweredFor(r))
			require.Empty(t, b.unansweredFor(s))
			end(b)
			require.Empty(t, b.unanswered, sentence)
		}
	})

	t.Run("I04 it still is when the answer was lost, and another attempt was refused", func(t *testing.T) {
		t.Parallel()
		b := emptyState()
		b.plan(a, becauseOf("r"))
		b.try(a, act.Delete)
		b.fail(a, act.Timeout, act.Attempt{Sent: true})
		b.try(a, act.Delete)
		b.fail(a, act.Throttled, act.Attempt{Sent: true})
		require.Equal(t, []tracker.Key{a}, b.unansweredFor(r))
		b.close(a, act.Gone, nil)
		require.Empty(t, b.unanswered)
		require.Equal(t, 1, b.evictedBy(r))
	})

	t.Run("I04 DE-68 one whose answer was lost counts for the rules because of which it was asked for", func(t *testing.T) {
		t.Parallel()
		l := listening()
		l.state.plan(a, becauseOf("r", "s"))
		l.state.try(a, act.Delete)
		l.state.fail(a, act.Timeout, act.Attempt{Sent: true})
		// The claim by which r applies is seen released before the pod is seen gone.
		l.state.plan(a, becauseOf("s"))
		l.heard()
		l.state.close(a, act.Gone, nil)
		require.Equal(t, []string{"r", "s"}, l.heard())
		require.Equal(t, 1, l.state.evictedBy(r))
		require.Equal(t, 1, l.state.evictedBy(s))
	})

	t.Run("DE-68 one that is evicted at last counts for the rules of that attempt", func(t *testing.T) {
		t.Parallel()
		b := emptyState()
		b.plan(a, becauseOf("r", "s"))
		b.fail(a, act.Timeout, act.Attempt{Sent: true})
		b.plan(a, becauseOf("s"))
		b.close(a, act.Evicted, nil)
		require.Zero(t, b.evictedBy(r))
		require.Equal(t, 1, b.evictedBy(s))
	})
}
