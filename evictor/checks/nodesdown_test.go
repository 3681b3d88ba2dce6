package checks

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return noon.Add(d) }

func taint(kind tracker.SourceKind, key string, added time.Time) tracker.Taint {
	return tracker.Taint{
		Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: added, Seen: added, Stamped: true,
		Source: tracker.Source{Kind: kind, Name: "n"},
	}
}

func TestJ03EvictionsStopWhileAllNodesAreDown(t *testing.T) {
	t.Parallel()
	var (
		notReady    = taint(tracker.SourceNode, corev1.TaintNodeNotReady, noon)
		unreachable = taint(tracker.SourceNode, corev1.TaintNodeUnreachable, noon)
	)
	for name, tt := range map[string]struct {
		nodes, down int
		stops       bool
	}{
		"no node at all":              {0, 0, false},
		"one node that is ready":      {1, 0, false},
		"one node that is down":       {1, 1, true},
		"all but one":                 {100, 99, false},
		"all of them":                 {100, 100, true},
		"J04 one zone of three":       {30, 10, false},
		"J04 two whole zones of them": {30, 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s NodeDisruption
			require.Equal(t, tt.stops, s.Observe(noon, tt.nodes, tt.down))
			require.False(t, s.Observe(noon, tt.nodes, tt.down))
			require.Equal(t, tt.stops, s.Holds(&notReady))
			require.Equal(t, tt.stops, s.Holds(&unreachable))
		})
	}

	t.Run("only those of the node lifecycle controller", func(t *testing.T) {
		t.Parallel()
		var s NodeDisruption
		s.Observe(noon, 1, 1)
		for _, other := range []tracker.Taint{
			taint(tracker.SourceNode, "maintenance", noon),
			taint(tracker.SourceNode, corev1.TaintNodeOutOfService, noon),
			taint(tracker.SourceNode, corev1.TaintNodeUnschedulable, noon),
			taint(tracker.SourceRule, corev1.TaintNodeNotReady, noon),
			taint(tracker.SourceSlice, corev1.TaintNodeUnreachable, noon),
		} {
			require.False(t, s.Holds(&other), other.String())
		}
	})

	t.Run("the state that has seen nothing holds nobody", func(t *testing.T) {
		t.Parallel()
		var s NodeDisruption
		taints := []tracker.Taint{notReady}
		require.False(t, s.Holds(&notReady))
		require.Same(t, &taints[0], &s.Recount(taints)[0])
	})
}

func TestJ03DeadlinesCountAnewFromTheRecovery(t *testing.T) {
	t.Parallel()
	recovered := after(time.Hour)
	afterAll := func() *NodeDisruption {
		s := &NodeDisruption{}
		s.Observe(noon, 3, 3)
		require.True(t, s.Observe(recovered, 3, 2))
		return s
	}

	t.Run("of taints that stood there before", func(t *testing.T) {
		t.Parallel()
		taints := []tracker.Taint{
			taint(tracker.SourceNode, "maintenance", noon),
			taint(tracker.SourceNode, corev1.TaintNodeNotReady, noon),
			taint(tracker.SourceNode, corev1.TaintNodeUnreachable, recovered.Add(time.Second)),
		}
		got := afterAll().Recount(taints)
		require.Equal(t, noon, got[0].TimeAdded)
		require.Equal(t, recovered, got[1].TimeAdded)
		require.Equal(t, recovered, got[1].Seen)
		require.Equal(t, recovered.Add(time.Second), got[2].TimeAdded)
		require.Equal(t, noon, taints[1].TimeAdded, "what is shared is not written to")
	})

	t.Run("others are left where they are", func(t *testing.T) {
		t.Parallel()
		s := afterAll()
		taints := []tracker.Taint{taint(tracker.SourceNode, "maintenance", noon)}
		require.Same(t, &taints[0], &s.Recount(taints)[0])
		require.Empty(t, s.Recount(nil))
	})

	t.Run("of the last recovery, if there were several", func(t *testing.T) {
		t.Parallel()
		s := afterAll()
		s.Observe(after(2*time.Hour), 3, 3)
		s.Observe(after(3*time.Hour), 3, 0)
		require.Equal(t, after(3*time.Hour), s.Recount([]tracker.Taint{taint(tracker.SourceNode, corev1.TaintNodeNotReady, noon)})[0].TimeAdded)
	})

	t.Run("H05 a clock that is set back does not put them off", func(t *testing.T) {
		t.Parallel()
		s := afterAll()
		require.False(t, s.Observe(noon, 3, 2))
		require.Equal(t, noon, s.Recount([]tracker.Taint{taint(tracker.SourceNode, corev1.TaintNodeNotReady, after(-time.Hour))})[0].TimeAdded)
	})

	t.Run("a cluster whose last nodes are deleted has recovered", func(t *testing.T) {
		t.Parallel()
		s := &NodeDisruption{}
		s.Observe(noon, 3, 3)
		require.True(t, s.Observe(recovered, 0, 0))
		require.False(t, s.Holds(new(taint(tracker.SourceNode, corev1.TaintNodeNotReady, noon))))
	})
}

// TestJ03EveryStopHasItsRecovery lets nodes go down and come back at random. What lasts for
// less than two seconds, as in the middle of a relist, has no recovery.
func TestJ03EveryStopHasItsRecovery(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, seed))
	var s NodeDisruption
	all, since, recovered, stops := false, time.Time{}, time.Time{}, 0
	for i := range 10_000 {
		now := after(time.Duration(i) * time.Second)
		nodes := r.IntN(3)
		down := r.IntN(nodes + 1)
		change := s.Observe(now, nodes, down)
		stopped := nodes != 0 && down == nodes
		require.Equal(t, stopped != all, change, "seed %d", seed)
		require.Equal(t, stopped, s.Holds(new(taint(tracker.SourceNode, corev1.TaintNodeNotReady, noon))), "seed %d", seed)
		if stopped && !all {
			since = now
		}
		if all && !stopped && now.Sub(since) >= 2*time.Second {
			recovered = now
			stops++
		}
		all = stopped
		old := taint(tracker.SourceNode, corev1.TaintNodeNotReady, noon.Add(-time.Hour))
		counts := s.Recount([]tracker.Taint{old})[0].TimeAdded
		if recovered.IsZero() {
			recovered = old.TimeAdded
		}
		require.Equal(t, recovered, counts, "seed %d", seed)
	}
	require.Greater(t, stops, 300) // 557 are expected, with a standard deviation of 22.
}

func TestStateIsSafeForManyWorkers(t *testing.T) {
	t.Parallel()
	var s NodeDisruption
	var wg sync.WaitGroup
	old := taint(tracker.SourceNode, corev1.TaintNodeNotReady, noon)
	for worker := range 4 {
		wg.Go(func() {
			for i := range 200 {
				s.Observe(after(time.Duration(i)*time.Second), 1, (worker+i)%2)
				s.Holds(&old)
				s.Recount([]tracker.Taint{old})
			}
		})
	}
	wg.Wait()
	s.Observe(after(time.Hour), 1, 0)
	require.False(t, s.Holds(&old))
}
