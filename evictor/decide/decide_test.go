package decide

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

func at(n int) time.Time { return noon.Add(seconds(n)) }

// taintSince returns a taint that counts from some seconds after noon.
func taintSince(key string, n int) tracker.Taint {
	return tracker.Taint{
		Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: at(n), Seen: at(n), Stamped: true,
		Source: tracker.Source{Kind: tracker.SourceNode, Name: "n"},
	}
}

// podSince returns a pod that was bound some seconds after noon.
func podSince(n int, tolerations ...corev1.Toleration) tracker.Pod {
	return tracker.Pod{Key: tracker.Key{Namespace: "ns", Name: "p", UID: "u"}, NodeName: "n", Bound: at(n), Tolerations: tolerations}
}

// onNode returns the situation of a pod on a node with these taints.
func onNode(pod tracker.Pod, taints ...tracker.Taint) tracker.Situation {
	return tracker.Situation{Pod: pod, Taints: taints}
}

// byDefault returns the decision by the rules of Kubernetes.
func byDefault(now time.Time, situation tracker.Situation) Decision {
	return Rules{}.Decide(now, situation)
}

func TestDecide(t *testing.T) {
	t.Parallel()
	never := time.Time{}
	anyEffect := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}
	for _, test := range []struct {
		name   string
		pod    tracker.Pod
		taints []tracker.Taint
		rules  Rules
		want   time.Time
	}{
		{"NE-02 no taint, no reason to leave", podSince(0), nil, Rules{}, never},
		{"NE-02 an untolerated taint means leaving at once", podSince(0), []tracker.Taint{taintSince("gpu", 10)}, Rules{}, at(10)},
		{"NE-02 a toleration of another key does not help", podSince(0, forever("disk")), []tracker.Taint{taintSince("gpu", 10)}, Rules{}, at(10)},
		{"NE-02 a toleration without end means staying", podSince(0, forever("gpu")), []tracker.Taint{taintSince("gpu", 10)}, Rules{}, never},
		{
			"NE-03 one untolerated taint among tolerated ones means leaving at once",
			podSince(0, forever("gpu"), tolerationFor("net", 5)),
			[]tracker.Taint{taintSince("gpu", 10), taintSince("disk", 20), taintSince("net", 20)},
			Rules{},
			at(20),
		},
		{"NE-04 of 60 seconds and then for ever the 60 seconds count", podSince(0, tolerationFor("gpu", 60), forever("gpu")), []tracker.Taint{taintSince("gpu", 0)}, Rules{}, at(61)},
		{"NE-04 of for ever and then 60 seconds for ever counts", podSince(0, forever("gpu"), tolerationFor("gpu", 60)), []tracker.Taint{taintSince("gpu", 0)}, Rules{}, never},
		{
			"NE-05 the first toleration to run out is the one",
			podSince(0, tolerationFor("gpu", 60), tolerationFor("disk", 30), forever("net")),
			[]tracker.Taint{taintSince("gpu", 0), taintSince("disk", 0), taintSince("net", 0)},
			Rules{},
			at(31),
		},
		{
			"NE-05 each toleration counts from its own taint",
			podSince(0, tolerationFor("gpu", 60), tolerationFor("disk", 30)),
			[]tracker.Taint{taintSince("gpu", 0), taintSince("disk", 100)},
			Rules{},
			at(61),
		},
		{"NE-11 a toleration without end behind the one that matches does not cancel", podSince(0, tolerationFor("gpu", 60), forever("gpu"), forever("")), []tracker.Taint{taintSince("gpu", 0)}, Rules{}, at(61)},
		{"NE-29 a toleration without an effect is one without end", podSince(0, anyEffect), []tracker.Taint{taintSince("gpu", 0)}, Rules{}, never},
		{"NE-29 Gt does not match unless it is switched on", podSince(0, comparing(corev1.TolerationOpGt, "5")), []tracker.Taint{valued("7")}, Rules{}, at(0)},
		{"NE-29 Gt tolerates the greater taint when it is switched on", podSince(0, comparing(corev1.TolerationOpGt, "5")), []tracker.Taint{valued("7")}, Rules{ComparisonOperators: true}, never},
		{"NE-29 Lt does not tolerate the greater taint", podSince(0, comparing(corev1.TolerationOpLt, "5")), []tracker.Taint{valued("7")}, Rules{ComparisonOperators: true}, at(0)},
		{"NE-29 what is no number does not match", podSince(0, comparing(corev1.TolerationOpGt, "many")), []tracker.Taint{valued("7")}, Rules{ComparisonOperators: true}, at(0)},
		{"G09 a pod bound after the taint has its toleration from then on", podSince(100, tolerationFor("gpu", 60)), []tracker.Taint{taintSince("gpu", 0)}, Rules{}, at(161)},
		{"G09 an untolerated pod is due when it was bound", podSince(100), []tracker.Taint{taintSince("gpu", 0)}, Rules{}, at(100)},
		{"H01 a taint of the future waits for its time", podSince(0), []tracker.Taint{future(3600)}, Rules{}, at(3600)},
		{"H01 and so does a toleration of it", podSince(0, tolerationFor("gpu", 60)), []tracker.Taint{future(3600)}, Rules{}, at(3661)},
		{"H01 how long it waits can be bounded", podSince(0), []tracker.Taint{future(3600)}, Rules{MaxHold: time.Minute}, at(60)},
		{"H01 a bound does not hurry what comes sooner", podSince(0), []tracker.Taint{future(30)}, Rules{MaxHold: time.Minute}, at(30)},
		{"H02 a back-dated taint uses up the toleration", podSince(-9000, tolerationFor("gpu", 3600)), []tracker.Taint{taintSince("gpu", -7200)}, Rules{}, at(-3599)},
		{"H06 zero seconds are no seconds", podSince(0, tolerationFor("gpu", 0)), []tracker.Taint{taintSince("gpu", 10)}, Rules{}, at(10)},
		{"H06 negative seconds are no seconds", podSince(0, tolerationFor("gpu", -1)), []tracker.Taint{taintSince("gpu", 10)}, Rules{}, at(10)},
		{"H06 the most negative number of seconds is no seconds", podSince(0, tolerationFor("gpu", math.MinInt64)), []tracker.Taint{taintSince("gpu", 10)}, Rules{}, at(10)},
		{"H06 NE-27 the greatest number of seconds is for ever", podSince(0, tolerationFor("gpu", math.MaxInt64)), []tracker.Taint{taintSince("gpu", 10)}, Rules{}, never},
		{"NE-27 seconds that wrap to zero nanoseconds are for ever", podSince(0, tolerationFor("gpu", 1<<62)), []tracker.Taint{taintSince("gpu", 10)}, Rules{}, never},
		{"NE-27 seconds that wrap to a fraction are for ever", podSince(0, tolerationFor("gpu", 18446744074)), []tracker.Taint{taintSince("gpu", 10)}, Rules{}, never},
		{"NE-27 seconds that wrap to a negative number are for ever", podSince(0, tolerationFor("gpu", 9223372037)), []tracker.Taint{taintSince("gpu", 10)}, Rules{}, never},
		{"NE-27 the longest that can be counted is counted", podSince(0, tolerationFor("gpu", 9223372036)), []tracker.Taint{taintSince("gpu", 0)}, Rules{}, noon.Add(9223372036 * time.Second).Add(time.Second)},
		{"G08 a pod that succeeded or failed stays", with(podSince(0), func(p *tracker.Pod) { p.Finished = true }), []tracker.Taint{taintSince("gpu", 0)}, Rules{}, never},
		{"G08 a pod on its way out stays on it", with(podSince(0), func(p *tracker.Pod) { p.Terminating = true }), []tracker.Taint{taintSince("gpu", 0)}, Rules{}, never},
		{"G08 a pod without a node stays", with(podSince(0), func(p *tracker.Pod) { p.NodeName = "" }), []tracker.Taint{taintSince("gpu", 0)}, Rules{}, never},
		{"G08 a mirror pod stays", with(podSince(0), func(p *tracker.Pod) { p.Mirror = true }), []tracker.Taint{taintSince("gpu", 0)}, Rules{}, never},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := test.rules.Decide(noon, onNode(test.pod, test.taints...))
			if test.want.IsZero() {
				require.Equal(t, Decision{}, got)
				return
			}
			require.Equal(t, EvictAt, got.Verdict)
			require.Equal(t, test.want, got.At)
			require.Equal(t, got.Because[0].At, got.At)
			require.Equal(t, max(test.want.Sub(noon), 0), got.Wait)
		})
	}
}

func TestDecideNeverEarly(t *testing.T) {
	t.Parallel()

	t.Run("H07 a stored time stands for any instant of its second", func(t *testing.T) {
		t.Parallel()
		for _, fraction := range []time.Duration{0, 1, time.Millisecond, 999 * time.Millisecond, time.Second - 1} {
			truly := noon.Add(fraction)
			taint := taintSince("gpu", 0)
			taint.TimeAdded = truly.Truncate(time.Second)
			got := byDefault(noon, onNode(podSince(-5, tolerationFor("gpu", 10)), taint))
			require.False(t, got.At.Before(truly.Add(10*time.Second)), "early after %s", fraction)
			require.Less(t, got.At.Sub(truly.Add(10*time.Second)), time.Second+1)
		}
	})

	t.Run("H07 stamping a taint does not move the deadline", func(t *testing.T) {
		t.Parallel()
		seen := taintSince("gpu", 0)
		seen.TimeAdded, seen.Stamped = noon.Add(700*time.Millisecond), false
		stamped := taintSince("gpu", 0)
		pod := podSince(-5, tolerationFor("gpu", 10))
		require.Equal(t, byDefault(noon, onNode(pod, seen)).At, byDefault(noon, onNode(pod, stamped)).At)
	})

	t.Run("H07 the time a pod was bound stands for any instant of its second too", func(t *testing.T) {
		t.Parallel()
		got := byDefault(noon, onNode(podSince(50, tolerationFor("gpu", 10)), taintSince("gpu", 0)))
		require.Equal(t, at(61), got.At)
	})
}

func TestDecisionExplainsItself(t *testing.T) {
	t.Parallel()
	pod := podSince(0, tolerationFor("gpu", 60), forever("net"))
	got := byDefault(noon, onNode(pod, taintSince("net", 0), taintSince("gpu", 0), taintSince("disk", 5), taintSince("cpu", 5)))
	var because []string
	for _, reason := range got.Because {
		because = append(because, reason.Taint.String())
	}
	require.Equal(t, []string{"cpu:NoExecute", "disk:NoExecute", "gpu:NoExecute"}, because)
	require.False(t, got.Because[0].Tolerated)
	require.True(t, got.Because[2].Tolerated)
	require.Equal(t, EvictAt, got.Verdict)
	require.Equal(t, []string{
		"cpu:NoExecute since 2026-03-01T12:00:05Z", "disk:NoExecute since 2026-03-01T12:00:05Z", "gpu:NoExecute since 2026-03-01T12:00:00Z",
	}, got.Reasons())
}

func with(pod tracker.Pod, change func(*tracker.Pod)) tracker.Pod {
	change(&pod)
	return pod
}

func future(n int) tracker.Taint {
	taint := taintSince("gpu", n)
	taint.Seen = noon
	return taint
}

func comparing(operator corev1.TolerationOperator, value string) corev1.Toleration {
	return corev1.Toleration{Key: "gpu", Operator: operator, Value: value, Effect: corev1.TaintEffectNoExecute}
}

func valued(value string) tracker.Taint {
	taint := taintSince("gpu", 0)
	taint.Value = value
	return taint
}
