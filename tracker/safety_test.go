package tracker_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

func noSchedule(key string) corev1.Taint {
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}
}

func TestJ03NodesDown(t *testing.T) {
	t.Parallel()
	excluded := func(n tracker.Node) tracker.Node {
		n.Labels = tracker.Labels{{Key: "node.kubernetes.io/exclude-disruption", Value: "false"}}
		return n
	}
	for name, test := range map[string]struct {
		nodes       []tracker.Node
		total, down int
	}{
		"no nodes": {},
		"a node that is not ready is down, whatever the effect of the taint": {
			nodes: []tracker.Node{node("a", 1, noSchedule(corev1.TaintNodeNotReady)), node("b", 1, taint(corev1.TaintNodeNotReady)), node("c", 1)},
			total: 3, down: 2,
		},
		"a node that is not reached is down": {
			nodes: []tracker.Node{node("a", 1, noSchedule(corev1.TaintNodeUnreachable))}, total: 1, down: 1,
		},
		"a node with both taints is down once": {
			nodes: []tracker.Node{node("a", 1, noSchedule(corev1.TaintNodeUnreachable), taint(corev1.TaintNodeUnreachable), taint(corev1.TaintNodeNotReady))},
			total: 1, down: 1,
		},
		"no other taint says that a node is down": {
			nodes: []tracker.Node{node("a", 1, taint("gpu"), noSchedule(corev1.TaintNodeMemoryPressure))}, total: 1,
		},
		"a node that is excluded by its label does not count": {
			nodes: []tracker.Node{excluded(node("a", 1)), excluded(node("b", 1, taint(corev1.TaintNodeNotReady))), node("c", 1)}, total: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := tracker.New()
			for _, n := range test.nodes {
				tr.SetNode(n, start)
			}
			total, down := tr.NodesDown()
			require.Equal(t, [2]int{test.total, test.down}, [2]int{total, down})
			for _, n := range test.nodes {
				tr.DeleteNode(n.Name, n.UID)
			}
			total, down = tr.NodesDown()
			require.Equal(t, [2]int{}, [2]int{total, down}, "nodes that are gone do not count")
		})
	}

	t.Run("an answer to a request of our own counts, and an older version does not", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetNode(node("a", 5), start)
		tr.RefreshNode(node("a", 6, noSchedule(corev1.TaintNodeNotReady)), "", start)
		tr.SetNode(node("a", 5), start)
		tr.RefreshNode(node("b", 7), "", start)
		total, down := tr.NodesDown()
		require.Equal(t, [2]int{1, 1}, [2]int{total, down})
	})
	t.Run("a node that is only named by its pods does not count", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetPod(pod("p", "a", 1))
		total, _ := tr.NodesDown()
		require.Zero(t, total)
	})
}

func TestTwins(t *testing.T) {
	t.Parallel()

	t.Run("a node has a twin of a taint with the same key only, whatever its value", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetPod(pod("p", "a", 1))
		tr.SetNode(node("a", 1, taint("gpu"), noSchedule("other")), start)
		require.False(t, tr.NodeTwin("a", "gpu"))
		valued := noSchedule("gpu")
		valued.Value = "x"
		require.Equal(t, keysOf("p"), tr.SetNode(node("a", 2, taint("gpu"), valued), start), "the pods that wait for it are named")
		require.True(t, tr.NodeTwin("a", "gpu"), "beside one with another value no second one can stand")
		require.True(t, tr.Twin(tracker.Source{Kind: tracker.SourceNode, Name: "a"}, tracker.Taint{Key: "gpu"}, gpu("x")))
		require.Empty(t, tr.SetNode(node("a", 3, taint("gpu"), noSchedule("gpu")), start), "it is a twin as before")
		require.True(t, tr.NodeTwin("a", "gpu"))
		require.True(t, tr.Twin(tracker.Source{Kind: tracker.SourceNode, Name: "a"}, tracker.Taint{Key: "gpu"}, gpu("x")))
		tr.SetNode(node("a", 4, taint("gpu")), start)
		require.False(t, tr.NodeTwin("a", "gpu"))
		require.False(t, tr.NodeTwin("gone", "gpu"))
	})

	t.Run("a rule is the twin of a taint on every device that it selects", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetDevicesKnown(true)
		driver := &resourcev1.DeviceTaintSelector{Driver: new("d")}
		tr.SetPod(usingClaims(pod("p", "a", 1), "c"))
		tr.SetClaim(claimFor("c", 1, []string{"p"}, gpu("x")))
		tr.SetRule(rule("r", 1, driver, noExecute("gpu")), start)
		source := tracker.Source{Kind: tracker.SourceRule, Name: "r"}
		require.False(t, tr.Twin(source, tracker.Taint{Key: "gpu"}, gpu("x")))
		other := deviceTaint("other", resourcev1.DeviceTaintEffectNoSchedule)
		require.Empty(t, tr.SetRule(rule("r-noschedule", 2, driver, other), start), "a taint that is no twin names nobody")
		twin := deviceTaint("gpu", resourcev1.DeviceTaintEffectNoSchedule)
		require.Equal(t, keysOf("p"), tr.SetRule(rule("r-noschedule", 3, driver, twin), start))
		require.True(t, tr.Twin(source, tracker.Taint{Key: "gpu"}, gpu("x")))
		require.Empty(t, tr.SetRule(rule("r-noschedule", 4, driver, twin), start), "nothing has changed")
		tr.SetDevicesKnown(false)
		require.False(t, tr.DeviceTwin(gpu("x"), "gpu", ""), "nothing is known")
	})

	t.Run("a slice may have both", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetDevicesKnown(true)
		both := []resourcev1.DeviceTaint{noExecute("gpu"), deviceTaint("gpu", resourcev1.DeviceTaintEffectNoSchedule)}
		tr.SetSlice(sliceOf("s", 1, 1, tracker.Device{Name: "x", Taints: both}, tracker.Device{Name: "y", Taints: both[:1]}), start)
		require.True(t, tr.DeviceTwin(gpu("x"), "gpu", ""))
		require.False(t, tr.DeviceTwin(gpu("y"), "gpu", ""))
	})
}

// usingClaims returns a pod that uses claims.
func usingClaims(p tracker.Pod, claims ...string) tracker.Pod {
	for _, name := range claims {
		p.Claims = append(p.Claims, tracker.PodClaim{Name: name})
	}
	return p
}

func TestWindows(t *testing.T) {
	t.Parallel()
	given := v1alpha1.FormatWindow([]v1alpha1.WindowToleration{{Key: "gpu", Seconds: 60}})
	meta := metav1.ObjectMeta{Namespace: "default", Name: "p", Annotations: map[string]string{v1alpha1.AnnotationWindow: given}}
	window := &tracker.Window{{Key: "gpu", Seconds: 60}}

	t.Run("what was given is kept of pods and claims", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, window, tracker.PodOf(&corev1.Pod{ObjectMeta: meta}).Window)
		require.Equal(t, window, tracker.ClaimOf(&resourcev1.ResourceClaim{ObjectMeta: meta}).Window)
		require.Nil(t, tracker.PodOf(&corev1.Pod{}).Window)
		require.Nil(t, tracker.PodOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationWindow: "gpu=-1,=5,x"}}}).Window)
		require.Nil(t, new(tracker.Pod).Window.Tolerations())
	})
	t.Run("a pod whose window changes is named while something holds for it", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetNode(node("a", 1, taint("gpu")), start)
		p := pod("p", "a", 1)
		tr.SetPod(p)
		p.ResourceVersion, p.Window = "2", window
		require.Equal(t, keysOf("p"), tr.SetPod(p))
		p.ResourceVersion, p.Window = "3", &tracker.Window{{Key: "gpu", Seconds: 60}}
		require.Empty(t, tr.SetPod(p), "it says the same")
	})
	t.Run("the devices of a situation say what the claim was given", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetDevicesKnown(true)
		tr.SetPod(usingClaims(pod("p", "a", 1), "c"))
		c := claimFor("c", 1, []string{"p"}, gpu("x"))
		c.Window = window
		tr.SetClaim(c)
		tr.SetRule(rule("r", 1, &resourcev1.DeviceTaintSelector{}, noExecute("gpu")), start)
		situation, _ := tr.Lookup(key("p"))
		require.Equal(t, window, situation.Devices[0].Window)
		impact, _ := tr.Impact("r")
		require.Equal(t, window, impact.Pods[0].Devices[0].Window)
		c.ResourceVersion, c.Window = "2", nil
		require.Equal(t, keysOf("p"), tr.SetClaim(c))
	})
}

func TestG10AClaimThatWasReadIsTakenIn(t *testing.T) {
	t.Parallel()
	known := func() *tracker.Tracker {
		tr := tracker.New()
		tr.SetDevicesKnown(true)
		tr.SetPod(usingClaims(pod("p", "a", 1), "c"))
		tr.SetClaim(claimFor("c", 5, []string{"p"}, gpu("x")))
		tr.SetRule(rule("r", 1, &resourcev1.DeviceTaintSelector{}, noExecute("gpu")), start)
		return tr
	}
	for name, test := range map[string]struct {
		version int
		uid     string
		free    bool
	}{
		"a reservation that was taken away frees the pod": {version: 6, free: true},
		"an older answer changes nothing":                 {version: 4},
		"an answer about another claim changes nothing":   {version: 7, uid: "another"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := known()
			answer := claimFor("c", test.version, nil, gpu("x"))
			if test.uid != "" {
				answer.UID = "another"
			}
			keys := tr.RefreshClaim(answer)
			if test.free {
				require.Equal(t, keysOf("p"), keys)
				require.Empty(t, tr.Exposed())
				return
			}
			require.Empty(t, keys)
			require.Equal(t, keysOf("p"), tr.Exposed())
		})
	}
	t.Run("an answer does not bring back a claim that is gone", func(t *testing.T) {
		t.Parallel()
		tr := known()
		tr.DeleteClaim(tracker.ClaimName{Namespace: "default", Name: "c"}, "c-uid")
		require.Empty(t, tr.RefreshClaim(claimFor("c", 9, []string{"p"}, gpu("x"))))
		require.Empty(t, tr.Exposed())
	})
}

func TestPoliciesGoByLabels(t *testing.T) {
	t.Parallel()
	tr := tracker.New()
	tr.SetNode(node("a", 1, taint("gpu")), start)
	labelled := func(name, on string, version int, value string) tracker.Pod {
		p := pod(name, on, version)
		p.Origin = &tracker.Origin{Labels: tracker.Labels{{Key: "app", Value: value}}}
		return p
	}
	tr.SetPod(labelled("p", "a", 1, "x"))
	tr.SetPod(labelled("q", "b", 1, "x"))
	require.Empty(t, tr.SetPod(labelled("p", "a", 2, "x")))
	require.Equal(t, keysOf("p"), tr.SetPod(labelled("p", "a", 3, "y")))
	require.Empty(t, tr.SetPod(labelled("q", "b", 3, "y")), "no taint holds for it")
}

func TestG18ABudgetThatAllowsMoreNamesThePodsThatItGuards(t *testing.T) {
	t.Parallel()
	everyone := &metav1.LabelSelector{}
	with := func(version int, allowed int32, selector *metav1.LabelSelector) tracker.Budget {
		b := budget("default", "b", "1", strconv.Itoa(10+version), selector)
		b.Allowed = allowed
		return b
	}
	for name, test := range map[string]struct {
		write func(tr *tracker.Tracker) []tracker.Key
		named bool
	}{
		"one that allows more":        {func(tr *tracker.Tracker) []tracker.Key { return tr.SetBudget(with(2, 2, everyone)) }, true},
		"one that allows as many":     {func(tr *tracker.Tracker) []tracker.Key { return tr.SetBudget(with(2, 1, everyone)) }, false},
		"one that allows fewer":       {func(tr *tracker.Tracker) []tracker.Key { return tr.SetBudget(with(2, 0, everyone)) }, false},
		"one that selects others":     {func(tr *tracker.Tracker) []tracker.Key { return tr.SetBudget(with(2, 1, nil)) }, true},
		"an older version":            {func(tr *tracker.Tracker) []tracker.Key { return tr.SetBudget(with(-1, 5, everyone)) }, false},
		"one that is deleted":         {func(tr *tracker.Tracker) []tracker.Key { return tr.DeleteBudget("default", "b", "1") }, true},
		"another one that is deleted": {func(tr *tracker.Tracker) []tracker.Key { return tr.DeleteBudget("default", "b", "2") }, false},
		"a new one beside it": {func(tr *tracker.Tracker) []tracker.Key {
			return tr.SetBudget(budget("default", "c", "3", "3", everyone))
		}, false},
		"one of another namespace": {func(tr *tracker.Tracker) []tracker.Key { return tr.DeleteBudget("other", "b", "1") }, false},
		"one that was created anew": {func(tr *tracker.Tracker) []tracker.Key {
			return tr.SetBudget(budget("default", "b", "9", "20", everyone))
		}, true},
		"one that allowed none before": {func(tr *tracker.Tracker) []tracker.Key {
			tr.SetBudget(with(2, 0, everyone))
			return tr.SetBudget(with(3, 1, everyone))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := tracker.New()
			tr.SetNode(node("a", 1, taint("gpu")), start)
			tr.SetPod(pod("p", "a", 1))
			tr.SetPod(pod("stays", "b", 1))
			require.Empty(t, tr.SetBudget(with(1, 1, everyone)), "nothing was in the way before")
			tr.SetBudget(budget("other", "b", "1", "1", everyone))
			var want []tracker.Key
			if test.named {
				want = keysOf("p")
			}
			require.Equal(t, want, test.write(tr))
		})
	}
}
