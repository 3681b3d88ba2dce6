package evictor

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/tracker"
)

// emptyState returns a state without evictions. All of its rules exist, and no listener is called.
func emptyState() *state {
	return newState(func([]tracker.Source) {}, func(tracker.Source) bool { return true }, func() time.Time { return time.Time{} })
}

// evictedBy and unansweredFor are what an evictor with this state says of a rule.
func (s *state) evictedBy(rule types.UID) int { return (&Evictor{state: s}).EvictedBy(rule) }

func (s *state) unansweredFor(rule types.UID) []tracker.Key {
	return (&Evictor{state: s}).Unanswered(rule)
}

func TestBook(t *testing.T) {
	t.Parallel()

	t.Run("I02 what waits for the API server is woken by its recovery, but not all the time", func(t *testing.T) {
		t.Parallel()
		b := emptyState()
		down, denied := tracker.Key{Name: "down"}, tracker.Key{Name: "denied"}
		b.plan(down, dueBecause(tracker.Source{Kind: tracker.SourceNode, Name: "n"}))
		b.plan(denied, dueBecause(tracker.Source{Kind: tracker.SourceNode, Name: "n"}))
		b.fail(down, act.Unavailable, act.Attempt{})
		b.fail(denied, act.Denied, act.Attempt{})
		require.Equal(t, []tracker.Key{down}, b.recover(noon))
		b.fail(down, act.Unavailable, act.Attempt{})
		require.Empty(t, b.recover(noon.Add(recoveryPause-1)))
		require.Equal(t, []tracker.Key{down}, b.recover(noon.Add(recoveryPause)))
		require.Empty(t, b.recover(noon.Add(2*recoveryPause)))
	})

	t.Run("what is not in the state can fail and be closed", func(t *testing.T) {
		t.Parallel()
		b := emptyState()
		require.Equal(t, pendingEviction{failure: act.Denied, failures: 1}, b.fail(tracker.Key{}, act.Denied, act.Attempt{}))
		_, _, ok := b.close(tracker.Key{}, act.Gone, nil)
		require.False(t, ok)
	})
}

// listener keeps what a state says of rules. It asks back, as a listener may.
type listener struct {
	state *state
	told  []string
}

func listening() *listener {
	l := &listener{}
	l.state = newState(func(rules []tracker.Source) {
		l.state.evictedBy("any")
		for _, rule := range rules {
			l.told = append(l.told, rule.Name)
		}
	}, func(tracker.Source) bool { return true }, func() time.Time { return time.Time{} })
	return l
}

// heard returns what was said since the last time.
func (l *listener) heard() []string {
	told := l.told
	l.told = nil
	return told
}

// dueBecause returns the decision about a pod that is due since noon because of a taint of each
// source.
func dueBecause(sources ...tracker.Source) decide.Decision {
	var reasons []decide.Reason
	for _, source := range sources {
		taint := tracker.Taint{Key: "k", Effect: corev1.TaintEffectNoExecute, TimeAdded: noon, Source: source}
		reasons = append(reasons, decide.Reason{Taint: taint, At: noon})
	}
	return decide.NewDecision(noon, reasons)
}

func becauseOf(rules ...string) decide.Decision {
	var sources []tracker.Source
	for _, rule := range rules {
		sources = append(sources, tracker.Source{Kind: tracker.SourceRule, Name: rule, UID: types.UID(rule + "-rule-uid")})
	}
	return dueBecause(sources...)
}

func TestBookTellsOfRules(t *testing.T) {
	t.Parallel()
	a, b := tracker.Key{Name: "a"}, tracker.Key{Name: "b"}

	t.Run("DE-66 DE-74 when a pod comes, when its rules change and when it is let go, but not in between", func(t *testing.T) {
		t.Parallel()
		l := listening()
		l.state.plan(a, becauseOf("s", "r"))
		require.Equal(t, []string{"r", "s"}, l.heard())
		l.state.plan(a, becauseOf("r", "s"))
		require.Empty(t, l.heard(), "which of them is first is not news")
		l.state.plan(b, becauseOf("r"))
		require.Equal(t, []string{"r"}, l.heard())
		l.state.plan(a, becauseOf("s", "t", "u"))
		heard := l.heard()
		slices.Sort(heard)
		require.Equal(t, []string{"r", "t", "u"}, heard)
		_, outcome, ok := l.state.close(a, act.Unfinished, nil)
		require.True(t, ok)
		require.Equal(t, act.Unfinished, outcome)
		require.Equal(t, []string{"s", "t", "u"}, l.heard())
		require.Zero(t, l.state.evictedBy("s-rule-uid"))
		l.state.close(b, act.Gone, nil)
		require.Equal(t, []string{"r"}, l.heard())
		require.Zero(t, l.state.evictedBy("r-rule-uid"))
	})

	t.Run("DE-68 DE-74 when a pod is evicted it is counted before", func(t *testing.T) {
		t.Parallel()
		l := listening()
		l.state.plan(a, becauseOf("r", "s"))
		counted := 0
		l.state.changed = func([]tracker.Source) { counted = l.state.evictedBy("r-rule-uid") }
		_, outcome, _ := l.state.close(a, act.Evicted, nil)
		require.Equal(t, act.Evicted, outcome)
		require.Equal(t, 1, counted)
		require.Equal(t, 1, l.state.evictedBy("s-rule-uid"))
	})

	t.Run("I04 a deletion whose answer was lost is ours when the pod goes, and is not when it stays", func(t *testing.T) {
		t.Parallel()
		l := listening()
		for key, end := range map[tracker.Key]act.Outcome{a: act.Gone, b: act.Unfinished} {
			l.state.plan(key, becauseOf("r"))
			l.state.fail(key, act.Timeout, act.Attempt{Sent: true})
			l.state.close(key, end, nil)
		}
		require.Equal(t, 1, l.state.evictedBy("r-rule-uid"))
	})

	t.Run("a pod whose node alone is tainted concerns no rule", func(t *testing.T) {
		t.Parallel()
		l := listening()
		l.state.plan(a, dueBecause(tracker.Source{Kind: tracker.SourceNode, Name: "n"}))
		l.state.close(a, act.Evicted, nil)
		require.Empty(t, l.heard())
	})

	t.Run("DE-75 a rule created anew under its name is told of, and counted by itself", func(t *testing.T) {
		t.Parallel()
		l := listening()
		l.state.plan(a, becauseOf("r"))
		anew := becauseOf("r")
		anew.Because[0].Taint.Source.UID = "another"
		require.Equal(t, []string{"r"}, l.heard())
		l.state.plan(a, anew)
		require.Equal(t, []string{"r", "r"}, l.heard())
		l.state.close(a, act.Evicted, nil)
		require.Equal(t, 1, l.state.evictedBy("another"))
		require.Len(t, l.state.evicted, 1)
	})
}

func TestRulesChanged(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		told := map[string]int{}
		w.options.RulesChanged = func(rules []string) {
			for _, rule := range rules {
				told[rule]++
			}
			w.evictor.EvictedBy("any")
		}
		podWithDevice(w, tolerated("gpu", 60))
		rule := newRule("r", "", deviceTaint("gpu"))
		w.start()
		w.set(rule)
		require.Equal(w.t, map[string]int{"r": 1}, told)
		w.pass(seconds(30))
		w.drop(rule)
		require.Equal(w.t, map[string]int{"r": 2}, told)
		w.set(newRule("s", "", deviceTaint("gpu")))
		w.pass(2 * time.Minute)
		w.leaves(podA)
		require.Equal(w.t, map[string]int{"r": 2, "s": 2}, told)
	})
}
