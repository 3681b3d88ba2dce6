package decide

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// mustBeGone is Decide told another way: not when a pod has to leave, but whether
// it must be gone at an instant. It counts in whole seconds since the epoch and
// shares no code with what it judges.
func mustBeGone(pod tracker.Pod, taints []tracker.Taint, instant time.Time) bool {
	if pod.NodeName == "" || pod.Finished || pod.Terminating || pod.Mirror {
		return false
	}
	for _, taint := range taints {
		began := taint.TimeAdded
		if began.Before(pod.Bound) {
			began = pod.Bound
		}
		if instant.Before(began) {
			continue
		}
		lasts := int64(0)
		endless := false
		for _, toleration := range pod.Tolerations {
			if !oracleMatches(toleration, taint) {
				continue
			}
			switch s := toleration.TolerationSeconds; {
			case s == nil, *s > 9_223_372_036:
				endless = true
			case *s > 0:
				lasts = *s
			}
			break
		}
		if endless {
			continue
		}
		if lasts == 0 || instant.Unix()-began.Unix() > lasts {
			return true
		}
	}
	return false
}

// oracleMatches is the documentation of tolerations, without the operators that
// are off.
func oracleMatches(toleration corev1.Toleration, taint tracker.Taint) bool {
	effect := toleration.Effect == "" || toleration.Effect == taint.Effect
	key := toleration.Key == "" || toleration.Key == taint.Key
	exists := toleration.Operator == corev1.TolerationOpExists
	equal := (toleration.Operator == "" || toleration.Operator == corev1.TolerationOpEqual) && toleration.Value == taint.Value
	return effect && key && (exists || equal)
}

// world of values that collide often.
type generator struct{ *rand.Rand }

func (g generator) pick(options ...string) string { return options[g.IntN(len(options))] }

func (g generator) instant() time.Time {
	t := at(g.IntN(40) - 20)
	if g.IntN(3) == 0 {
		t = t.Add(time.Duration(g.Int64N(int64(time.Second))))
	}
	return t
}

func (g generator) taints() []tracker.Taint {
	var taints []tracker.Taint
	for range g.IntN(4) {
		taints = append(taints, tracker.Taint{
			Key: g.pick("a", "b", "c"), Value: g.pick("", "x", "5"), Effect: corev1.TaintEffectNoExecute,
			TimeAdded: g.instant(), Seen: noon, Stamped: true, Source: tracker.Source{Kind: tracker.SourceNode, Name: "n"},
		})
	}
	return taints
}

func (g generator) toleration() corev1.Toleration {
	toleration := corev1.Toleration{
		Key:      g.pick("", "a", "b", "c"),
		Operator: corev1.TolerationOperator(g.pick("", "Equal", "Exists", "Exists", "Lt", "Gt", "Odd")),
		Value:    g.pick("", "x", "5"),
		Effect:   corev1.TaintEffect(g.pick("", "NoExecute", "NoExecute", "NoSchedule")),
	}
	if g.IntN(4) > 0 {
		odd := []int64{0, -1, math.MinInt64, math.MaxInt64, 1 << 62, 18446744074, 9223372036, 9223372037}
		seconds := g.Int64N(30)
		if g.IntN(8) == 0 {
			seconds = odd[g.IntN(len(odd))]
		}
		toleration.TolerationSeconds = &seconds
	}
	return toleration
}

func (g generator) pod() tracker.Pod {
	pod := tracker.Pod{NodeName: "n", Bound: g.instant()}
	for range g.IntN(4) {
		pod.Tolerations = append(pod.Tolerations, g.toleration())
	}
	switch g.IntN(40) {
	case 0:
		pod.Finished = true
	case 1:
		pod.Terminating = true
	case 2:
		pod.Mirror = true
	case 3:
		pod.NodeName = ""
	}
	return pod
}

// forRandom runs a property on many pods and taints. The seed of a failure is in
// the test's log.
func forRandom(t *testing.T, property func(g generator, pod tracker.Pod, taints []tracker.Taint)) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	g := generator{rand.New(rand.NewPCG(seed, 0))}
	for range 20000 {
		property(g, g.pod(), g.taints())
	}
}

// deadline returns when a pod has to leave; never is the end of time.
func deadline(pod tracker.Pod, taints []tracker.Taint) time.Time {
	if d := byDefault(noon, onNode(pod, taints...)); d.Verdict == EvictAt {
		return d.At
	}
	return time.Unix(math.MaxInt32*1000, 0)
}

func TestDecideProperties(t *testing.T) {
	t.Parallel()

	t.Run("it agrees with the oracle at every instant", func(t *testing.T) {
		t.Parallel()
		gone := 0
		forRandom(t, func(g generator, pod tracker.Pod, taints []tracker.Taint) {
			d := byDefault(noon, onNode(pod, taints...))
			instants := []time.Time{g.instant(), g.instant().Add(seconds(30)), d.At, d.At.Add(-1), d.At.Add(1)}
			for _, instant := range instants {
				if instant.Year() < 2000 {
					continue
				}
				want := mustBeGone(pod, taints, instant)
				got := d.Verdict == EvictAt && !instant.Before(d.At)
				require.Equal(t, want, got, "pod %+v taints %+v at %s: %+v", pod, taints, instant, d)
				if want {
					gone++
				}
			}
		})
		require.Greater(t, gone, 10000, "the generator must make pods that leave")
	})

	t.Run("another taint never postpones", func(t *testing.T) {
		t.Parallel()
		forRandom(t, func(g generator, pod tracker.Pod, taints []tracker.Taint) {
			more := append(slices.Clone(taints), g.taints()...)
			require.False(t, deadline(pod, more).After(deadline(pod, taints)))
		})
	})

	t.Run("another toleration behind the others never hastens", func(t *testing.T) {
		t.Parallel()
		forRandom(t, func(g generator, pod tracker.Pod, taints []tracker.Taint) {
			before := deadline(pod, taints)
			pod.Tolerations = append(slices.Clone(pod.Tolerations), g.toleration())
			require.False(t, deadline(pod, taints).Before(before))
		})
	})

	t.Run("the order of taints is irrelevant", func(t *testing.T) {
		t.Parallel()
		forRandom(t, func(g generator, pod tracker.Pod, taints []tracker.Taint) {
			shuffled := slices.Clone(taints)
			g.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			require.True(t, deadline(pod, taints).Equal(deadline(pod, shuffled)))
		})
	})

	t.Run("NE-07 decided again later, by another leader, the deadline is the same", func(t *testing.T) {
		t.Parallel()
		forRandom(t, func(g generator, pod tracker.Pod, taints []tracker.Taint) {
			first, again := byDefault(noon, onNode(pod, taints...)), byDefault(g.instant().Add(time.Hour), onNode(pod, taints...))
			require.Equal(t, first.Verdict, again.Verdict)
			require.Equal(t, first.At, again.At)
			require.Equal(t, first.Because, again.Because)
		})
	})
}
