package tracker_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// stampedAt returns a NoExecute taint with a value and a time, in seconds from start.
func stampedAt(value string, seconds int) corev1.Taint {
	return corev1.Taint{
		Key: "k", Value: value, Effect: corev1.TaintEffectNoExecute,
		TimeAdded: new(metav1.NewTime(start.Add(time.Duration(seconds) * time.Second))),
	}
}

func TestAppeared(t *testing.T) {
	t.Parallel()
	after := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

	for name, test := range map[string]struct {
		writes [][]corev1.Taint // a hundred seconds apart
		want   int
	}{
		"a taint that was there before the node was known is as old as it says": {[][]corev1.Taint{{stampedAt("", -500)}}, -500},
		"a taint that comes with an old time is new":                            {[][]corev1.Taint{nil, {stampedAt("", -500)}}, 100},
		"a taint that comes with the time of now has that":                      {[][]corev1.Taint{nil, {stampedAt("", 100)}}, 100},
		"a time in the future counts":                                           {[][]corev1.Taint{nil, {stampedAt("", 900)}}, 900},
		"another value makes it new":                                            {[][]corev1.Taint{{stampedAt("a", -500)}, {stampedAt("b", -500)}}, 100},
		"a time set back makes it new":                                          {[][]corev1.Taint{{stampedAt("", -100)}, {stampedAt("", -500)}}, 100},
		"a time moved ahead is what it says":                                    {[][]corev1.Taint{{stampedAt("", -500)}, {stampedAt("", -100)}}, -100},
		"what was new stays so":                                                 {[][]corev1.Taint{nil, {stampedAt("", -500)}, {stampedAt("", -500)}, {stampedAt("", -400)}}, 100},
		"a taint without a time appeared when it was first seen":                {[][]corev1.Taint{nil, {taint("k")}, {taint("k")}}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := tracker.New()
			for i, taints := range test.writes {
				tr.SetNode(node("n", i+1, taints...), after(100*i))
			}
			_, taints := tr.Taints("n")
			require.Len(t, taints, 1)
			require.Equal(t, after(test.want), taints[0].Appeared())
		})
	}
}

func TestARuleAppearedWhenItWasLastMadeWider(t *testing.T) {
	t.Parallel()
	pool, driver := &resourcev1.DeviceTaintSelector{Pool: new("p0")}, &resourcev1.DeviceTaintSelector{Driver: new("d")}
	old := noExecute("k")
	old.TimeAdded = new(metav1.NewTime(start.Add(-time.Hour)))
	earlier, valued, none := old, old, old
	earlier.TimeAdded = new(metav1.NewTime(start.Add(-2 * time.Hour)))
	valued.Value, none.Effect = "v", resourcev1.DeviceTaintEffectNone

	for name, test := range map[string]struct {
		was, is tracker.Rule
		fresh   bool
	}{
		"written again":               {rule("r", 1, pool, old), rule("r", 2, pool, old), false},
		"of another selector":         {rule("r", 1, pool, old), rule("r", 2, driver, old), true},
		"that selects all after none": {rule("r", 1, nil, old), rule("r", 2, &resourcev1.DeviceTaintSelector{}, old), true},
		"that selects at last":        {rule("r", 1, nil, old), rule("r", 2, driver, old), true},
		"of another value":            {rule("r", 1, pool, old), rule("r", 2, pool, valued), true},
		"of another effect":           {rule("r", 1, pool, none), rule("r", 2, pool, old), true},
		"of another time":             {rule("r", 1, pool, old), rule("r", 2, pool, earlier), true},
		"with more time":              {rule("r", 1, pool, earlier), rule("r", 2, pool, old), false},
	} {
		t.Run("a rule "+name, func(t *testing.T) {
			t.Parallel()
			tr := devicesKnown()
			tr.SetRule(test.was, start)
			tr.SetRule(test.is, start.Add(time.Minute))
			taint, ok := tr.RuleTaint("r")
			require.True(t, ok)
			if test.fresh {
				require.Equal(t, start.Add(time.Minute), taint.Appeared())
			} else {
				require.Equal(t, taint.TimeAdded, taint.Appeared())
			}
		})
	}

	t.Run("H02 a rule that is created with an old time appeared when it was created", func(t *testing.T) {
		t.Parallel()
		created := rule("r", 1, pool, old)
		created.Created = start
		tr := devicesKnown()
		tr.SetRule(created, start.Add(time.Minute))
		taint, _ := tr.RuleTaint("r")
		require.Equal(t, start, taint.Appeared())
	})
}

func TestASliceThatSetsTheTimeOfATaintBackMakesItNew(t *testing.T) {
	t.Parallel()
	taintAt := func(at time.Time) resourcev1.DeviceTaint {
		taint := noExecute("k")
		taint.TimeAdded = new(metav1.NewTime(at))
		return taint
	}
	tr := fleet(1, 0)
	tr.SetSlice(poolSlice(0, 2, taintAt(start.Add(-time.Hour))), start)
	require.Empty(t, tr.ExposedSince(start.Add(-time.Minute)))
	tr.SetSlice(poolSlice(0, 3, taintAt(start.Add(-2*time.Hour))), start.Add(time.Second))
	require.Len(t, tr.ExposedSince(start.Add(time.Second)), 1)
	tr.SetSlice(poolSlice(0, 4, taintAt(start.Add(-2*time.Hour))), start.Add(time.Minute))
	require.Empty(t, tr.ExposedSince(start.Add(time.Minute)))
}

// TestExposedSinceIsExposedAndRecent compares with Exposed, which looks at every pod.
func TestExposedSinceIsExposedAndRecent(t *testing.T) {
	t.Parallel()
	seed := uint64(environment(t, seedEnv, int(time.Now().UnixNano())))
	w := newWorld(rand.New(rand.NewPCG(seed, seed)))
	found := 0
	for i := range 4_000 {
		w.step()
		what := fmt.Sprintf("seed %d, operation %d", seed, i)
		since := start.Add(time.Duration(w.IntN(4)-1) * time.Second)
		var want, got []tracker.Key
		for _, key := range w.tracker.Exposed() {
			situation, _ := w.tracker.Lookup(key)
			if recent(&situation, since) {
				want = append(want, key)
			}
		}
		for _, situation := range w.tracker.ExposedSince(since) {
			if recent(&situation, since) { // a claim may be one that gives the pod nothing
				got = append(got, situation.Pod.Key)
			}
		}
		require.ElementsMatch(t, want, got, what)
		found += len(want)
	}
	require.Positive(t, found)
}

func recent(s *tracker.Situation, since time.Time) bool {
	taints := s.Taints
	for _, used := range s.Devices {
		taints = append(slices.Clip(taints), used.Taints...)
	}
	for i := range taints {
		if !taints[i].Appeared().Before(since) {
			return true
		}
	}
	return false
}
