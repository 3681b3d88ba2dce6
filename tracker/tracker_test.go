package tracker_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func taint(key string) corev1.Taint {
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.NewTime(start))}
}

func bare(key string) corev1.Taint {
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
}

func node(name string, version int, taints ...corev1.Taint) tracker.Node {
	return tracker.Node{Name: name, UID: types.UID(name + "-uid"), ResourceVersion: strconv.Itoa(version), Taints: taints}
}

func pod(name, node string, version int, tolerations ...corev1.Toleration) tracker.Pod {
	return tracker.Pod{
		Key: key(name), ResourceVersion: strconv.Itoa(version), NodeName: node, Bound: start, Tolerations: tolerations,
	}
}

func key(name string) tracker.Key {
	return tracker.Key{Namespace: "default", Name: name, UID: types.UID(name + "-uid")}
}

func keysOf(names ...string) []tracker.Key {
	var keys []tracker.Key
	for _, name := range names {
		keys = append(keys, key(name))
	}
	return keys
}

func texts(taints []tracker.Taint) []string {
	var s []string
	for _, t := range taints {
		s = append(s, t.String()+"@"+t.TimeAdded.Format(time.TimeOnly))
	}
	return s
}

func TestSetNode(t *testing.T) {
	t.Parallel()

	t.Run("NE-01 only NoExecute taints are kept", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetPod(pod("a", "n", 1))
		noSchedule := taint("maintenance")
		noSchedule.Effect = corev1.TaintEffectNoSchedule
		prefer := taint("maintenance")
		prefer.Effect = corev1.TaintEffectPreferNoSchedule
		require.Empty(t, tr.SetNode(node("n", 1, noSchedule, prefer), start))
		require.Empty(t, tr.Tainted())
		require.Equal(t, keysOf("a"), tr.SetNode(node("n", 2, noSchedule, taint("gpu"), prefer), start))
		situation, ok := tr.Lookup(key("a"))
		taints := situation.Taints
		require.True(t, ok)
		require.Equal(t, []string{"gpu:NoExecute@12:00:00"}, texts(taints))
		require.Equal(t, []string{"n"}, tr.Tainted())
	})

	t.Run("NE-13 an update that leaves the NoExecute taints alone concerns no pod", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetNode(node("n", 1, taint("gpu")), start)
		tr.SetPod(pod("a", "n", 1))
		require.Empty(t, tr.SetNode(node("n", 2, taint("gpu")), start.Add(time.Hour)))
		noSchedule := taint("maintenance")
		noSchedule.Effect = corev1.TaintEffectNoSchedule
		require.Empty(t, tr.SetNode(node("n", 3, taint("gpu"), noSchedule), start.Add(time.Hour)))
	})

	t.Run("NE-13 a new value or time of a taint concerns the pods of that node alone", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetNode(node("n", 1, taint("gpu")), start)
		tr.SetNode(node("m", 1, taint("gpu")), start)
		tr.SetPod(pod("a", "n", 1))
		tr.SetPod(pod("b", "m", 1))
		valued := taint("gpu")
		valued.Value = "broken"
		require.Equal(t, keysOf("a"), tr.SetNode(node("n", 2, valued), start))
		valued.TimeAdded = new(metav1.NewTime(start.Add(time.Minute)))
		require.Equal(t, keysOf("a"), tr.SetNode(node("n", 3, valued), start))
	})

	t.Run("NE-28 a node that is created with a taint concerns the pods already bound to it", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetPod(pod("b", "n", 1))
		tr.SetPod(pod("a", "n", 1))
		tr.SetPod(pod("c", "m", 1))
		require.ElementsMatch(t, keysOf("a", "b"), tr.SetNode(node("n", 1, taint("gpu")), start))
	})

	t.Run("I08 an older version of a node changes nothing", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetPod(pod("a", "n", 1))
		tr.SetNode(node("n", 10), start)
		require.Empty(t, tr.SetNode(node("n", 9, taint("gpu")), start))
		require.Empty(t, tr.Tainted())
	})

	t.Run("a version that cannot be compared is taken as new", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetPod(pod("a", "n", 1))
		tr.SetNode(node("n", 10), start)
		odd := node("n", 0, taint("gpu"))
		odd.ResourceVersion = "not a number"
		require.Equal(t, keysOf("a"), tr.SetNode(odd, start))
	})
}

func TestTaintTimes(t *testing.T) {
	t.Parallel()

	t.Run("H03 a taint without a time counts from when it was first seen", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetPod(pod("a", "n", 1))
		tr.SetNode(node("n", 1), start)
		tr.SetNode(node("n", 2, bare("gpu")), start.Add(time.Minute))
		require.Empty(t, tr.SetNode(node("n", 3, bare("gpu")), start.Add(time.Hour)))
		situation, _ := tr.Lookup(key("a"))
		taints := situation.Taints
		require.Equal(t, []string{"gpu:NoExecute@12:01:00"}, texts(taints))
		require.True(t, taints[0].Witnessed)
		require.False(t, taints[0].Stamped)
	})

	t.Run("H03 an update that forgets the time, or changes the value, does not start the clock again", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetNode(node("n", 1, taint("gpu")), start.Add(time.Hour))
		valued := bare("gpu")
		valued.Value = "broken"
		tr.SetNode(node("n", 2, valued), start.Add(2*time.Hour))
		_, taints := tr.Taints("n")
		require.Equal(t, []string{"gpu=broken:NoExecute@12:00:00"}, texts(taints))
	})

	t.Run("a taint that was away in between counts anew", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetNode(node("n", 1, bare("gpu")), start)
		tr.SetNode(node("n", 2), start)
		tr.SetNode(node("n", 3, bare("gpu")), start.Add(time.Minute))
		_, taints := tr.Taints("n")
		require.Equal(t, []string{"gpu:NoExecute@12:01:00"}, texts(taints))
	})

	t.Run("a node created anew under the same name inherits nothing", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetNode(node("n", 1, bare("gpu")), start)
		again := node("n", 2, bare("gpu"))
		again.UID = "another"
		tr.SetNode(again, start.Add(time.Minute))
		uid, taints := tr.Taints("n")
		require.Equal(t, types.UID("another"), uid)
		require.Equal(t, []string{"gpu:NoExecute@12:01:00"}, texts(taints))
		require.False(t, taints[0].Witnessed)
	})

	t.Run("a time in the object is what counts, and the taint is stamped from then on", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetPod(pod("a", "n", 1))
		tr.SetNode(node("n", 1, bare("gpu")), start.Add(time.Minute))
		require.Equal(t, keysOf("a"), tr.SetNode(node("n", 2, taint("gpu")), start.Add(time.Hour)))
		_, taints := tr.Taints("n")
		require.Equal(t, []string{"gpu:NoExecute@12:00:00"}, texts(taints))
		require.True(t, taints[0].Stamped)
	})
}

func TestDeleteNode(t *testing.T) {
	t.Parallel()

	t.Run("NE-14 G15 the taints of a deleted node hold no more, and its pods are told", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetNode(node("n", 1, taint("gpu")), start)
		tr.SetPod(pod("a", "n", 1))
		require.Equal(t, keysOf("a"), tr.DeleteNode("n", "n-uid"))
		situation, ok := tr.Lookup(key("a"))
		taints := situation.Taints
		require.True(t, ok)
		require.Empty(t, taints)
		require.Empty(t, tr.DeleteNode("n", "n-uid"))
		require.Empty(t, tr.DeletePod(key("a")))
		require.Empty(t, tr.PodsOn("n"))
	})

	t.Run("the deletion of a node that was created anew since changes nothing", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		again := node("n", 2, taint("gpu"))
		again.UID = "another"
		tr.SetNode(again, start)
		tr.SetPod(pod("a", "n", 1))
		require.Empty(t, tr.DeleteNode("n", "n-uid"))
		require.Empty(t, tr.DeleteNode("n", ""))
		require.Equal(t, []string{"n"}, tr.Tainted())
		require.Equal(t, keysOf("a"), tr.DeleteNode("n", "another"))
	})

	t.Run("a node that is not known can be deleted", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetPod(pod("a", "n", 1))
		require.Empty(t, tr.DeleteNode("n", ""))
		require.Empty(t, tr.DeleteNode("m", ""))
		require.Equal(t, keysOf("a"), tr.PodsOn("n"))
	})
}

func TestSetPod(t *testing.T) {
	t.Parallel()
	tainted := func() *tracker.Tracker {
		tr := tracker.New()
		tr.SetNode(node("n", 1, taint("gpu")), start)
		tr.SetNode(node("clean", 1), start)
		return tr
	}

	t.Run("NE-02 pods without a node or on an untainted node concern nobody", func(t *testing.T) {
		t.Parallel()
		tr := tainted()
		require.Empty(t, tr.SetPod(pod("a", "", 1)))
		require.Empty(t, tr.SetPod(pod("b", "clean", 1)))
		_, ok := tr.Lookup(key("a"))
		require.False(t, ok)
	})

	t.Run("NE-12 a pod that shows up after the taint is told of by its own event", func(t *testing.T) {
		t.Parallel()
		tr := tainted()
		require.Equal(t, keysOf("a"), tr.SetPod(pod("a", "n", 1)))
	})

	t.Run("NE-13 a status update that decides nothing is recorded and not told", func(t *testing.T) {
		t.Parallel()
		tr := tainted()
		seconds := corev1.Toleration{Key: "gpu", TolerationSeconds: new(int64(5))}
		tr.SetPod(pod("a", "n", 1, seconds))
		same := corev1.Toleration{Key: "gpu", TolerationSeconds: new(int64(5))}
		require.Empty(t, tr.SetPod(pod("a", "n", 2, same)))
		situation, _ := tr.Lookup(key("a"))
		got := situation.Pod
		require.Equal(t, "2", got.ResourceVersion)
	})

	t.Run("what decides is told", func(t *testing.T) {
		t.Parallel()
		changes := map[string]func(*tracker.Pod){
			"a toleration more":     func(p *tracker.Pod) { p.Tolerations = append(p.Tolerations, corev1.Toleration{Key: "x"}) },
			"a toleration less":     func(p *tracker.Pod) { p.Tolerations = nil },
			"another key":           func(p *tracker.Pod) { p.Tolerations[0].Key = "x" },
			"another operator":      func(p *tracker.Pod) { p.Tolerations[0].Operator = corev1.TolerationOpExists },
			"another value":         func(p *tracker.Pod) { p.Tolerations[0].Value = "x" },
			"another effect":        func(p *tracker.Pod) { p.Tolerations[0].Effect = corev1.TaintEffectNoExecute },
			"other seconds":         func(p *tracker.Pod) { p.Tolerations[0].TolerationSeconds = new(int64(6)) },
			"seconds no more":       func(p *tracker.Pod) { p.Tolerations[0].TolerationSeconds = nil },
			"another time it bound": func(p *tracker.Pod) { p.Bound = start.Add(time.Second) },
			"finished":              func(p *tracker.Pod) { p.Finished = true },
			"terminating":           func(p *tracker.Pod) { p.Terminating = true },
			"a mirror":              func(p *tracker.Pod) { p.Mirror = true },
			"another node":          func(p *tracker.Pod) { p.NodeName = "clean" },
		}
		for name, change := range changes {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tr := tainted()
				tr.SetPod(pod("a", "n", 1, corev1.Toleration{Key: "gpu", TolerationSeconds: new(int64(5))}))
				after := pod("a", "n", 2, corev1.Toleration{Key: "gpu", TolerationSeconds: new(int64(5))})
				change(&after)
				require.Equal(t, keysOf("a"), tr.SetPod(after))
			})
		}
	})

	t.Run("NE-16 a pod created anew under the same name is another pod", func(t *testing.T) {
		t.Parallel()
		tr := tainted()
		tr.SetPod(pod("a", "n", 1))
		again := pod("a", "clean", 2)
		again.UID = "another"
		require.Empty(t, tr.SetPod(again))
		require.Equal(t, keysOf("a"), tr.DeletePod(key("a")))
		situation, ok := tr.Lookup(again.Key)
		got, taints := situation.Pod, situation.Taints
		require.True(t, ok)
		require.Equal(t, "clean", got.NodeName)
		require.Empty(t, taints)
	})

	t.Run("I08 an older version of a pod changes nothing", func(t *testing.T) {
		t.Parallel()
		tr := tainted()
		tr.SetPod(pod("a", "n", 10, corev1.Toleration{Operator: corev1.TolerationOpExists}))
		require.Empty(t, tr.SetPod(pod("a", "n", 9)))
		situation, _ := tr.Lookup(key("a"))
		got := situation.Pod
		require.Len(t, got.Tolerations, 1)
	})

	t.Run("G17 a pod whose deletion was accepted is terminating whatever the watch still says", func(t *testing.T) {
		t.Parallel()
		tr := tainted()
		tr.SetPod(pod("a", "n", 1))
		tr.SetTerminating(key("a"))
		tr.SetTerminating(key("unknown"))
		require.Empty(t, tr.SetPod(pod("a", "n", 2)))
		situation, _ := tr.Lookup(key("a"))
		got := situation.Pod
		require.True(t, got.Terminating)
		require.Equal(t, "2", got.ResourceVersion)
	})

	t.Run("NE-15 a deleted pod is told of once, and one that is not known not at all", func(t *testing.T) {
		t.Parallel()
		tr := tainted()
		tr.SetPod(pod("a", "n", 1))
		require.Equal(t, keysOf("a"), tr.DeletePod(key("a")))
		require.Empty(t, tr.DeletePod(key("a")))
		_, ok := tr.Lookup(key("a"))
		require.False(t, ok)
	})
}

// event is one thing that is told to a tracker. Events of one object that follow
// each other in after must not come earlier than those.
type event struct {
	name  string
	apply func(*tracker.Tracker)
	after []string
}

func permute(events []event, visit func([]event)) {
	var walk func(done, left []event)
	walk = func(done, left []event) {
		if len(left) == 0 {
			visit(done)
			return
		}
		for i, e := range left {
			if slices.ContainsFunc(left, func(o event) bool { return slices.Contains(e.after, o.name) }) {
				continue
			}
			rest := slices.Concat(left[:i], left[i+1:])
			walk(slices.Concat(done, []event{e}), rest)
		}
	}
	walk(nil, events)
}

func TestEveryOrderOfEventsGivesTheSame(t *testing.T) {
	t.Parallel()
	recreated := pod("b", "n", 8)
	recreated.UID = "another"
	finished := pod("a", "n", 6, corev1.Toleration{Key: "gpu"})
	finished.Finished = true
	events := []event{
		{name: "node v1", apply: func(tr *tracker.Tracker) { tr.SetNode(node("n", 1), start) }},
		{name: "node v2", apply: func(tr *tracker.Tracker) { tr.SetNode(node("n", 2, bare("gpu"), taint("x")), start) }},
		{name: "node v2 again", apply: func(tr *tracker.Tracker) { tr.SetNode(node("n", 2, bare("gpu"), taint("x")), start) }},
		{name: "pod a v3", apply: func(tr *tracker.Tracker) { tr.SetPod(pod("a", "n", 3)) }},
		{name: "pod a v6", apply: func(tr *tracker.Tracker) { tr.SetPod(finished) }},
		{name: "pod b v4", apply: func(tr *tracker.Tracker) { tr.SetPod(pod("b", "n", 4)) }},
		{name: "pod b gone", apply: func(tr *tracker.Tracker) { tr.DeletePod(key("b")) }, after: []string{"pod b v4"}},
		{name: "pod b anew", apply: func(tr *tracker.Tracker) { tr.SetPod(recreated) }},
	}
	count := 0
	permute(events, func(order []event) {
		count++
		tr := tracker.New()
		for _, e := range order {
			e.apply(tr)
		}
		require.Equal(t, []tracker.Key{key("a"), recreated.Key}, tr.PodsOn("n"))
		require.Equal(t, []string{"n"}, tr.Tainted())
		situation, _ := tr.Lookup(key("a"))
		got, taints := situation.Pod, situation.Taints
		require.Equal(t, finished, got)
		require.Equal(t, []string{"gpu:NoExecute@12:00:00", "x:NoExecute@12:00:00"}, texts(taints))
		_, ok := tr.Lookup(key("b"))
		require.False(t, ok)
	})
	require.Equal(t, 40320/2, count)
}

func TestPodOf(t *testing.T) {
	t.Parallel()
	created := metav1.NewTime(start)
	started := metav1.NewTime(start.Add(time.Minute))
	scheduled := metav1.NewTime(start.Add(time.Hour))
	base := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "7", Generation: 3, CreationTimestamp: created},
		Spec:       corev1.PodSpec{NodeName: "n", Tolerations: []corev1.Toleration{{Key: "k"}}},
	}

	t.Run("a pod counts as bound since it was scheduled", func(t *testing.T) {
		t.Parallel()
		p := base.DeepCopy()
		p.Status.StartTime = &started
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: created},
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: scheduled},
		}
		require.Equal(t, scheduled.Time, tracker.PodOf(p).Bound)
	})
	t.Run("a pod created with a node name counts as bound since it started, and else since it was created", func(t *testing.T) {
		t.Parallel()
		p := base.DeepCopy()
		require.Equal(t, created.Time, tracker.PodOf(p).Bound)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, LastTransitionTime: scheduled}}
		p.Status.StartTime = &started
		require.Equal(t, started.Time, tracker.PodOf(p).Bound)
	})
	t.Run("what tells about a pod is kept", func(t *testing.T) {
		t.Parallel()
		p := base.DeepCopy()
		p.Labels = map[string]string{"tier": "front", "app": "web"}
		p.Spec.ServiceAccountName, p.Spec.PriorityClassName = "web", "high"
		p.OwnerReferences = []metav1.OwnerReference{
			{Kind: "Application", Name: "web"}, {Kind: "ReplicaSet", Name: "web-1", UID: "7", Controller: new(true)},
		}
		kept := tracker.PodOf(p)
		require.Equal(t, &tracker.Origin{
			Labels: tracker.Labels{{Key: "app", Value: "web"}, {Key: "tier", Value: "front"}}, ServiceAccount: "web", OwnerKind: "ReplicaSet", OwnerUID: "7", PriorityClassName: "high",
		}, kept.Origin)
		require.Equal(t, "high", kept.PriorityClassName())
		require.Empty(t, new(tracker.Pod).PriorityClassName())
		require.Equal(t, p.Labels, kept.Labels().Map())
		p.OwnerReferences = p.OwnerReferences[:1]
		owned := tracker.PodOf(p)
		require.Empty(t, owned.Origin.OwnerKind, "an owner that is no controller creates nothing anew")
		require.Nil(t, new(tracker.Pod).Labels())
	})
	t.Run("all that decides is kept", func(t *testing.T) {
		t.Parallel()
		p := base.DeepCopy()
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		p.DeletionTimestamp = &started
		p.Status.Phase = corev1.PodFailed
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		require.Equal(t, tracker.Pod{
			Key:             tracker.Key{Namespace: "ns", Name: "p", UID: "u"},
			ResourceVersion: "7", Generation: 3, NodeName: "n", Tolerations: base.Spec.Tolerations, Bound: start,
			Finished: true, Terminating: true, Mirror: true, Disruption: &p.Status.Conditions[0],
			Origin: &tracker.Origin{},
		}, tracker.PodOf(p))
		p.Status.Phase = corev1.PodSucceeded
		require.True(t, tracker.PodOf(p).Finished)
		p.Status.Phase = corev1.PodRunning
		require.False(t, tracker.PodOf(p).Finished)
	})
}
