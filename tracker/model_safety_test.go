package tracker_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// nodeTwin says whether a node has both effects of a key.
func (n *naive) nodeTwin(node, key string) bool {
	has := func(effect corev1.TaintEffect) bool {
		return slices.ContainsFunc(n.nodes[node].Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect })
	}
	return has(corev1.TaintEffectNoExecute) && has(corev1.TaintEffectNoSchedule)
}

// deviceTwin says whether anything taints a device with effect NoSchedule for the
// scheduler.
func (n *naive) deviceTwin(id device.ID, key, value string) bool {
	native := naive{slices: n.slices, rules: map[string]tracker.Rule{}}
	for name, r := range n.rules {
		r.Taint = r.NativeTaint()
		native.rules[name] = r
	}
	return n.devices && slices.ContainsFunc(native.taintsOf(id), func(text string) bool {
		return strings.HasPrefix(text, key+"="+value+":NoSchedule@")
	})
}

// twinned returns, for each pod, what of its reasons to leave has a twin.
func (n *naive) twinned() map[tracker.Key][]string {
	all := map[tracker.Key][]string{}
	for _, pod := range n.pods {
		if pod.NodeName == "" {
			continue
		}
		if n.nodeTwin(pod.NodeName, "gpu") {
			all[pod.Key] = append(all[pod.Key], "node")
		}
		if !n.devices {
			continue
		}
		for _, claim := range n.usable(pod) {
			for _, d := range claim.Devices {
				for _, text := range n.taintsOf(d.ID) {
					keyValue, rest, _ := strings.Cut(text, ":")
					key, value, _ := strings.Cut(keyValue, "=")
					if strings.HasPrefix(rest, "NoExecute@") && n.deviceTwin(d.ID, key, value) {
						all[pod.Key] = append(all[pod.Key], d.ID.String()+" "+keyValue)
					}
				}
			}
		}
	}
	return all
}

// checkTwins makes sure that twins are seen, and that the pods that waited for one that
// came to a node or with a rule are named.
func (w *world) checkTwins(t *testing.T, what string, before map[tracker.Key][]string, named []tracker.Key) {
	t.Helper()
	for i := range 2 {
		name := "n" + strconv.Itoa(i)
		want := w.model.nodeTwin(name, "gpu")
		require.Equal(t, want, w.tracker.NodeTwin(name, "gpu"), what)
		source := tracker.Source{Kind: tracker.SourceNode, Name: name}
		require.Equal(t, want, w.tracker.Twin(source, tracker.Taint{Key: "gpu"}, w.id()), what)
		require.False(t, w.tracker.NodeTwin(name, "other"), what)
	}
	id, key, value := w.id(), "k"+strconv.Itoa(w.IntN(2)), strconv.Itoa(w.IntN(2))
	want := w.model.deviceTwin(id, key, value)
	require.Equal(t, want, w.tracker.DeviceTwin(id, key, value), what)
	require.Equal(t, want, w.tracker.Twin(tracker.Source{Kind: tracker.SourceRule}, tracker.Taint{Key: key, Value: value}, id), what)
	if strings.Contains(what, " slice ") {
		return
	}
	for pod, reasons := range w.model.twinned() {
		for _, reason := range reasons {
			if !slices.Contains(before[pod], reason) {
				require.Contains(t, named, pod, "%s: twin of %s", what, reason)
			}
		}
	}
}

// checkOutage compares the counts of nodes with those of the model.
func (w *world) checkOutage(t *testing.T, what string) {
	t.Helper()
	wantNodes, wantDown := 0, 0
	for _, n := range w.model.nodes {
		if n.Labels.Has("node.kubernetes.io/exclude-disruption") {
			continue
		}
		wantNodes++
		for _, taint := range n.Taints {
			if taint.Key == "node.kubernetes.io/not-ready" || taint.Key == "node.kubernetes.io/unreachable" {
				wantDown++
				break
			}
		}
	}
	nodes, down := w.tracker.NodesDown()
	require.Equal(t, [2]int{wantNodes, wantDown}, [2]int{nodes, down}, what)
}

// checkBudgets writes or deletes a disruption budget, and makes sure that the pods that
// it may let go now are named, and no others.
func (w *world) checkBudgets(t *testing.T, what string) {
	t.Helper()
	selectors := []*metav1.LabelSelector{
		{}, nil, {MatchLabels: map[string]string{"app": "a0"}}, {MatchLabels: map[string]string{"app": "a1"}},
	}
	name, uid := "b"+strconv.Itoa(w.IntN(2)), strconv.Itoa(w.IntN(2))
	fresh := budget("ns", name, uid, w.next(), selectors[w.IntN(len(selectors))])
	fresh.Allowed = w.Int32N(3)
	old, known := w.budget(name)
	if known && w.IntN(2) == 0 {
		fresh.UID, fresh.Selector = old.UID, old.Selector
	}
	var got, want []tracker.Key
	var eased bool
	if w.IntN(5) == 0 {
		got, eased = w.tracker.DeleteBudget("ns", name, fresh.UID), known && old.UID == fresh.UID
	} else {
		got = w.tracker.SetBudget(fresh)
		eased = known && newer(fresh.ResourceVersion, old.ResourceVersion) &&
			(fresh.Allowed > old.Allowed || fresh.UID != old.UID || guardsOthers(old, fresh))
	}
	for _, pod := range w.model.pods {
		if eased && old.Guards(&pod) && w.model.situation(pod) != "" && pod.NodeName != "" {
			want = append(want, pod.Key)
		}
	}
	require.ElementsMatch(t, want, got, "%s, then budget %s", what, name)
}

// guardsOthers reports whether two budgets differ in which pods of the model they are
// about.
func guardsOthers(a, b tracker.Budget) bool {
	for _, labels := range []tracker.Labels{nil, {{Key: "app", Value: "a0"}}, {{Key: "app", Value: "a1"}}} {
		p := tracker.Pod{Key: podKey(0, 0), Origin: &tracker.Origin{Labels: labels}}
		if a.Guards(&p) != b.Guards(&p) {
			return true
		}
	}
	return false
}

func (w *world) budget(name string) (tracker.Budget, bool) {
	for _, b := range w.tracker.Budgets("ns") {
		if b.Name == name {
			return b, true
		}
	}
	return tracker.Budget{}, false
}
