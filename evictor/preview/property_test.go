package preview

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/tracker"
)

// TestWhatIsForetoldIsWhatThenHappens writes what was asked about, and compares what
// the evictor decides for every pod before and after it with the forecast.
func TestWhatIsForetoldIsWhatThenHappens(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := random{rand.New(rand.NewPCG(seed, seed))}
	evicting := map[string]int{}
	for i := range 3_000 {
		tr := tracker.New()
		keys := r.fill(tr)
		firstNode, firstRule, firstSlice := node("n", r.taints()...), r.rule(), r.slice()
		tr.SetNode(node("m", r.taints()...), noon)
		tr.SetNode(firstNode, noon)
		tr.SetRule(firstRule, noon)
		tr.SetSlice(firstSlice, noon)
		now := at(r.IntN(60)).Add(time.Duration(r.IntN(1000)) * time.Millisecond)
		view, before := newView(tr), decisions(tr, keys, now)

		var changes []tracker.Change
		var err error
		var what string
		switch i % 3 {
		case 0:
			written := node("n", r.taints()...)
			changes, err = view.Node(firstNode, written, now)
			tr.SetNode(written, now)
			what = "node"
		case 1:
			written := r.rule()
			var old *tracker.Rule
			if written.Name == firstRule.Name {
				old = &firstRule
			}
			changes, err = view.Rule(old, written, now)
			tr.SetRule(written, now)
			what = "rule"
		default:
			written := r.slice()
			changes, err = view.Slice(firstSlice, written, now)
			tr.SetSlice(written, now)
			what = "slice"
		}
		require.NoError(t, err)
		f := view.Forecast(now, changes)
		requireForecast(t, fmt.Sprintf("%s, seed %d, world %d", what, seed, i), &f, tr, before, decisions(tr, keys, now), now)
		evicting[what] += len(f.Pods)

		slices.Reverse(changes)
		again := view.Forecast(now, changes)
		require.Equal(t, describe(&f), describe(&again), "the order decides nothing")
	}
	for what, pods := range evicting {
		require.Greater(t, pods, 100, what)
	}
}

func decisions(t *tracker.Tracker, keys []tracker.Key, now time.Time) map[tracker.Key]decide.Decision {
	all := map[tracker.Key]decide.Decision{}
	for _, key := range keys {
		situation, _ := t.Lookup(key)
		all[key] = decide.Rules{}.Decide(now, situation)
	}
	return all
}

// requireForecast counts anew, in the plainest way.
func requireForecast(t *testing.T, what string, f *Forecast, tr *tracker.Tracker, before, after map[tracker.Key]decide.Decision, now time.Time) {
	t.Helper()
	got := map[tracker.Key]Pod{}
	for _, pod := range f.Pods {
		got[pod.Key] = pod
	}
	require.Len(t, got, len(f.Pods), what)
	namespaces := map[string]bool{}
	var pods, dueNow, guarded, ownerless, sooner int
	for key, decision := range after {
		was := before[key]
		hastened := was.Verdict == decide.EvictAt && was.At.After(now) && decision.At.Before(was.At)
		if decision.Verdict == decide.Keep || (was.Verdict == decide.EvictAt && !hastened) {
			require.NotContains(t, got, key, what)
			continue
		}
		require.Contains(t, got, key, what)
		require.Equal(t, decision.At, got[key].At, what)
		require.Equal(t, was.At, got[key].Was, what)
		situation, _ := tr.Lookup(key)
		pods++
		namespaces[key.Namespace] = true
		if got[key].Wait == 0 {
			dueNow++
			require.LessOrEqual(t, decision.At.Sub(now), resolution, what)
		} else {
			require.InDelta(t, decision.At.Sub(now).Seconds(), got[key].Wait.Seconds(), 1, what)
		}
		if hastened {
			sooner++
		}
		if situation.Pod.Origin.OwnerKind == "" {
			ownerless++
		}
		if len(tr.Budgets(key.Namespace)) > 0 && situation.Pod.Labels().Get("app") == "web" {
			guarded++
		}
	}
	later := 0
	for i, group := range f.Within {
		later += group.Pods
		require.Positive(t, group.Pods, what)
		require.True(t, i == 0 || f.Within[i-1].Time < group.Time, what)
	}
	require.Equal(t, []int{pods, len(namespaces), dueNow, pods - dueNow, guarded, ownerless, sooner},
		[]int{len(f.Pods), f.Namespaces, f.Now, later, f.Guarded, f.Ownerless, f.Sooner}, what)
	require.Equal(t, pods == 0, f.String() == "", what)
}

// TestAStrikeIsAForecastOfTheGovernedTaintsAlone compares with a cluster that has no
// other taints.
func TestAStrikeIsAForecastOfTheGovernedTaintsAlone(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := random{rand.New(rand.NewPCG(seed, seed))}
	governs := func(hit *Hit) bool { return hit.Taint.Key == "a" }
	struck := 0
	for i := range 2_000 {
		state := rand.NewPCG(seed, uint64(i))
		all, alone := tracker.New(), tracker.New()
		random{rand.New(state)}.fill(all)
		random{rand.New(rand.NewPCG(seed, uint64(i)))}.fill(alone)
		old, written := node("n", r.taints()...), node("n", r.taints()...)
		other := r.rule()
		all.SetNode(old, noon)
		all.SetRule(other, noon)
		alone.SetNode(only(old, "a"), noon)
		if other.Taint.Key == "a" {
			alone.SetRule(other, noon)
		}
		changes, err := newView(all).Node(old, written, noon)
		require.NoError(t, err)
		var got, want []tracker.Key
		for _, s := range newView(all).Strikes(changes) {
			if s.By(governs, noon) {
				require.NotEmpty(t, s.Taints(governs, noon))
				got = append(got, s.Key)
			}
		}
		f := foretold(t, newView(alone), only(old, "a"), only(written, "a"), noon)
		for _, pod := range f.Pods {
			want = append(want, pod.Key)
		}
		require.ElementsMatch(t, want, got, "seed %d, world %d", seed, i)
		struck += len(got)
	}
	require.Greater(t, struck, 100)
}

// only returns a node with its taints of that key.
func only(n tracker.Node, key string) tracker.Node {
	taints := n.Taints
	n.Taints = nil
	for _, taint := range taints {
		if taint.Key == key {
			n.Taints = append(n.Taints, taint)
		}
	}
	return n
}
