package preview

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// scene is a node with pods, about to be tainted.
func scene(pods ...tracker.Pod) *tracker.Tracker {
	tr := tracker.New()
	tr.SetNode(node("n"), noon)
	for _, p := range pods {
		tr.SetPod(p)
	}
	return tr
}

func TestSentence(t *testing.T) {
	t.Parallel()
	now := noon.Add(400 * time.Millisecond)
	later := func(name string, seconds int64) tracker.Pod { return pod(name, "n", tolerate("k", seconds)) }
	bare := func(p tracker.Pod) tracker.Pod {
		p.Origin = nil
		return p
	}
	elsewhere := func(p tracker.Pod) tracker.Pod {
		p.Namespace = "other"
		return p
	}
	spread := make([]tracker.Pod, 0, 10)
	for _, seconds := range []int64{0, 10, 20, 60, 61, 299, 300, 3600, 3601, 90_000} {
		spread = append(spread, later(fmt.Sprintf("p%d", seconds), seconds))
	}
	for name, test := range map[string]struct {
		pods []tracker.Pod
		want string
	}{
		"nobody":                      {nil, ""},
		"nobody who may not stay":     {[]tracker.Pod{later("a", -1)}, ""},
		"one":                         {[]tracker.Pod{pod("a", "n")}, "evicts 1 pod in 1 namespace: 1 now"},
		"one with time left":          {[]tracker.Pod{later("a", 300)}, "evicts 1 pod in 1 namespace: 1 within 300s"},
		"one with hardly any":         {[]tracker.Pod{later("a", 1)}, "evicts 1 pod in 1 namespace: 1 within 1s"},
		"one with a time in the past": {[]tracker.Pod{later("a", 0)}, "evicts 1 pod in 1 namespace: 1 now"},
		"several":                     {[]tracker.Pod{pod("a", "n"), elsewhere(pod("b", "n")), later("c", 300)}, "evicts 3 pods in 2 namespaces: 2 now, 1 within 300s"},
		"one without a controller":    {[]tracker.Pod{bare(pod("a", "n")), pod("b", "n")}, "evicts 2 pods in 1 namespace: 2 now; 1 without a controller"},
		"three times are named": {
			[]tracker.Pod{later("a", 10), later("b", 20), later("c", 30), later("d", 30)},
			"evicts 4 pods in 1 namespace: 1 within 10s, 1 within 20s, 2 within 30s",
		},
		"many times are brought together however far they are apart": {
			[]tracker.Pod{later("a", 10), later("b", 4000), later("c", 4001), later("d", 4002)},
			"evicts 4 pods in 1 namespace: 1 within 10s, 3 within 4002s",
		},
		"many times are brought together": {
			spread, "evicts 10 pods in 1 namespace: 1 now, 3 within 60s, 3 within 300s, 1 within 3600s, 1 within 3601s, 1 within 90000s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := foretold(t, newView(scene(test.pods...)), node("n"), node("n", exampleTaint("k", 0)), now)
			require.Equal(t, test.want, f.String())
		})
	}
}

// TestTheSentenceOfTheDesign has 37 pods in 5 namespaces.
func TestTheSentenceOfTheDesign(t *testing.T) {
	t.Parallel()
	tr := scene()
	for i := range 37 {
		p := pod("p"+strconv.Itoa(i), "n")
		p.Namespace = "ns-" + strconv.Itoa(i%5)
		if i >= 12 {
			p.Tolerations = []corev1.Toleration{tolerate("k", 300)}
		}
		if i < 2 {
			p.Origin = &tracker.Origin{}
		}
		if i%9 == 8 {
			p.Origin = &tracker.Origin{OwnerKind: "ReplicaSet", Labels: tracker.LabelsOf(map[string]string{"app": "web"})}
		}
		tr.SetPod(p)
		tr.SetBudget(budget(p.Namespace, "web", map[string]string{"app": "web"}))
		tr.SetBudget(budget(p.Namespace, "db", map[string]string{"app": "db"}))
	}
	f := foretold(t, newView(tr), node("n"), node("n", exampleTaint("k", 0)), noon)
	require.Equal(t, "evicts 37 pods in 5 namespaces: 12 now, 25 within 300s; 4 guarded by a PodDisruptionBudget, 2 without a controller", f.String())
	require.Equal(t, "would evict 37 pods in 5 namespaces: 12 now, 25 within 300s; 4 guarded by a PodDisruptionBudget, 2 without a controller", f.If())
}

func TestWhatIsNewOfAWrite(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pod      tracker.Pod
		old, new []corev1.Taint
		want     string
	}{
		"a taint that stood there evicts nobody anew": {pod("p", "n"), []corev1.Taint{exampleTaint("k", -60)}, []corev1.Taint{exampleTaint("k", -60), exampleTaint("l", 0)}, ""},
		"a pod that had time has none": {
			pod("p", "n", tolerate("k", 300)),
			[]corev1.Taint{exampleTaint("k", -60)},
			[]corev1.Taint{exampleTaint("k", -60), exampleTaint("l", 0)},
			"evicts 1 pod in 1 namespace: 1 now; 1 that had to leave later before",
		},
		"a time set back": {
			pod("p", "n", tolerate("k", 300)),
			[]corev1.Taint{exampleTaint("k", -60)},
			[]corev1.Taint{exampleTaint("k", -200)},
			"evicts 1 pod in 1 namespace: 1 within 100s; 1 that had to leave later before",
		},
		"a time moved ahead gives more time":          {pod("p", "n", tolerate("k", 300)), []corev1.Taint{exampleTaint("k", -200)}, []corev1.Taint{exampleTaint("k", -60)}, ""},
		"a pod that is overdue is no sooner due":      {pod("p", "n", tolerate("k", 300)), []corev1.Taint{exampleTaint("k", -400)}, []corev1.Taint{exampleTaint("k", -900)}, ""},
		"a taint that is taken away evicts nobody":    {pod("p", "n"), []corev1.Taint{exampleTaint("k", 0)}, nil, ""},
		"NE-01 NoSchedule evicts nobody":              {pod("p", "n"), nil, []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}, ""},
		"G09 a pod that came late has its time":       {boundAt(pod("p", "n", tolerate("k", 300)), -10), nil, []corev1.Taint{exampleTaint("k", -1000)}, "evicts 1 pod in 1 namespace: 1 within 290s"},
		"a taint whose time is still to come waits":   {pod("p", "n"), nil, []corev1.Taint{exampleTaint("k", 45)}, "evicts 1 pod in 1 namespace: 1 within 45s"},
		"a pod on its way out is not evicted":         {terminating(pod("p", "n")), nil, []corev1.Taint{exampleTaint("k", 0)}, ""},
		"a pod of another node is left where it is":   {pod("p", "m"), nil, []corev1.Taint{exampleTaint("k", 0)}, ""},
		"G13 the image of a static pod is left alone": {mirror(pod("p", "n")), nil, []corev1.Taint{exampleTaint("k", 0)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := scene(test.pod)
			tr.SetNode(node("n", test.old...), noon)
			f := foretold(t, newView(tr), node("n", test.old...), node("n", test.new...), noon)
			require.Equal(t, test.want, f.String())
		})
	}
}

func boundAt(p tracker.Pod, seconds int) tracker.Pod {
	p.Bound = at(seconds)
	return p
}

func terminating(p tracker.Pod) tracker.Pod {
	p.Terminating = true
	return p
}

func mirror(p tracker.Pod) tracker.Pod {
	p.Mirror = true
	return p
}

func TestNothingIsForetoldOfWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	tr := scene(pod("p", "n"))
	tainted := node("n", exampleTaint("k", 0))
	for name, test := range map[string]struct {
		view          View
		node, devices error
	}{
		"nothing is followed":    {View{}, ErrUnfollowed, ErrUnfollowed},
		"nodes are not followed": {View{PodsKnown: no, DevicesKnown: yes}, ErrUnfollowed, ErrUnread},
		"pods are not known":     {View{PodsKnown: no, NodesKnown: yes, DevicesKnown: yes}, ErrUnread, ErrUnread},
		"nodes are not known":    {View{PodsKnown: yes, NodesKnown: no, DevicesKnown: yes}, ErrUnread, nil},
		"devices are not known":  {View{PodsKnown: yes, NodesKnown: yes, DevicesKnown: no, BudgetsKnown: no}, nil, ErrUnread},
		"all but the budgets is": {View{PodsKnown: yes, NodesKnown: yes, DevicesKnown: yes, BudgetsKnown: no}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.view.Tracker = tr
			view := &test.view
			changes, err := view.Node(node("n"), tainted, noon)
			require.ErrorIs(t, err, test.node)
			_, err = view.Nodes(func(map[string]string) []corev1.Taint { return nil }, noon)
			require.ErrorIs(t, err, test.node)
			_, err = view.Rule(nil, rule("r", nil, deviceTaint("k", 0)), noon)
			require.ErrorIs(t, err, test.devices)
			_, err = view.Slice(tracker.Slice{}, tracker.Slice{}, noon)
			require.ErrorIs(t, err, test.devices)
			if test.node == nil {
				f := view.Forecast(noon, changes)
				require.Equal(t, "evicts 1 pod in 1 namespace: 1 now; which of them PodDisruptionBudgets guard is not known", f.String())
			}
		})
	}
}

func TestABudgetGuardsNobodyInAnotherNamespace(t *testing.T) {
	t.Parallel()
	origin := &tracker.Origin{OwnerKind: "ReplicaSet", Labels: tracker.LabelsOf(map[string]string{"app": "web"})}
	tr := scene()
	for _, namespace := range []string{"a", "b", "c"} {
		p := pod("p", "n")
		p.Namespace, p.Origin = namespace, origin
		p.UID += types.UID(namespace)
		tr.SetPod(p)
	}
	tr.SetBudget(budget("b", "web", map[string]string{"app": "web"}))
	f := foretold(t, newView(tr), node("n"), node("n", exampleTaint("k", 0)), noon)
	require.Equal(t, []bool{false, true, false}, []bool{f.Pods[0].Guarded, f.Pods[1].Guarded, f.Pods[2].Guarded})
}

func TestDevices(t *testing.T) {
	t.Parallel()
	tr := scene()
	tr.SetDevicesKnown(true)
	for name, dev := range map[string]string{"a": "x0", "b": "x1"} {
		p, claim := userOf(name, dev)
		tr.SetPod(p)
		tr.SetClaim(claim)
	}
	view := newView(tr)
	one, all := &resourcev1.DeviceTaintSelector{Device: new("x0")}, &resourcev1.DeviceTaintSelector{}

	t.Run("a rule", func(t *testing.T) {
		t.Parallel()
		changes, err := view.Rule(nil, rule("r", one, deviceTaint("k", 0)), noon)
		require.NoError(t, err)
		f := view.Forecast(noon, changes)
		require.Equal(t, "evicts 1 pod in 1 namespace: 1 now", f.String())
	})
	t.Run("a rule that is made wider hits those that it did not", func(t *testing.T) {
		t.Parallel()
		narrow := rule("r", one, deviceTaint("k", -60))
		changes, err := view.Rule(&narrow, rule("r", all, deviceTaint("k", -60)), noon)
		require.NoError(t, err)
		f := view.Forecast(noon, changes)
		require.Len(t, f.Pods, 1)
		require.Equal(t, "b", f.Pods[0].Name)
	})
	t.Run("the effect None evicts nobody until it is NoExecute", func(t *testing.T) {
		t.Parallel()
		none := rule("r", all, deviceTaint("k", 0))
		none.Taint.Effect = resourcev1.DeviceTaintEffectNone
		changes, err := view.Rule(nil, none, noon)
		require.NoError(t, err)
		require.Empty(t, changes)
		changes, err = view.Rule(&none, rule("r", all, deviceTaint("k", 0)), noon)
		require.NoError(t, err)
		require.Len(t, view.Forecast(noon, changes).Pods, 2)
	})
	t.Run("a slice", func(t *testing.T) {
		t.Parallel()
		slice := tracker.Slice{Name: "s", Driver: "d", Pool: "p", Devices: []tracker.Device{{Name: "x1", Taints: []resourcev1.DeviceTaint{deviceTaint("k", 0)}}}}
		changes, err := view.Slice(tracker.Slice{Name: "s"}, slice, noon)
		require.NoError(t, err)
		f := view.Forecast(noon, changes)
		require.Equal(t, "evicts 1 pod in 1 namespace: 1 now", f.String())
	})
}

func TestTaintsThatAreGivenToNodesByTheirLabels(t *testing.T) {
	t.Parallel()
	tr := tracker.New()
	labelled := func(name, pool string, taints ...corev1.Taint) {
		n := node(name, taints...)
		n.Labels = tracker.LabelsOf(map[string]string{"pool": pool})
		tr.SetNode(n, noon)
		tr.SetPod(pod("on-"+name, name))
	}
	bare := exampleTaint("k", 0)
	bare.TimeAdded = nil
	labelled("a", "banana")
	labelled("b", "banana", exampleTaint("k", -60))
	labelled("c", "apple")
	labelled("d", "banana", exampleTaint("other", -60))
	another := exampleTaint("k", -60)
	another.Value = "another"
	labelled("e", "banana", another)
	bound := pod("on-e", "e", corev1.Toleration{Key: "k", Operator: corev1.TolerationOpEqual, Value: "another"})
	tr.SetPod(bound)
	view := newView(tr)
	give := func(labels map[string]string) []corev1.Taint {
		if labels["pool"] != "banana" {
			return nil
		}
		return []corev1.Taint{bare, {Key: "l", Effect: corev1.TaintEffectNoSchedule}}
	}
	changes, err := view.Nodes(give, noon)
	require.NoError(t, err)
	f := view.Forecast(noon, changes)
	require.Len(t, f.Pods, 1, "who is due already, or whose node has the taint with whatever value, is not hit again")
	require.Equal(t, "on-a", f.Pods[0].Name)
}
