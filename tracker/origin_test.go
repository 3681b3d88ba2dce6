package tracker_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/tracker"
)

var _ labels.Labels = tracker.Labels{}

func TestLabelsAnswerAsAMap(t *testing.T) {
	t.Parallel()
	for _, set := range []labels.Set{{}, {"a": "1"}, {"a": "1", "b": "", "example.com/c": "3"}} {
		kept := tracker.LabelsOf(set)
		require.Equal(t, map[string]string(set), kept.Map())
		for _, key := range []string{"", "a", "aa", "b", "example.com/c", "z"} {
			value, exists := set.Lookup(key)
			got, ok := kept.Lookup(key)
			require.Equal(t, value, got, key)
			require.Equal(t, exists, ok, key)
			require.Equal(t, exists, kept.Has(key), key)
			require.Equal(t, value, kept.Get(key), key)
		}
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	labelled := func(name, version string, labels map[string]string, taints ...corev1.Taint) tracker.Node {
		n := &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}}
		n.ObjectMeta = metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: version, Labels: labels}
		return tracker.NodeOf(n)
	}
	tr := tracker.New()
	tr.SetPod(pod("p", "unknown", 1))
	tr.SetNode(labelled("b", "1", map[string]string{"pool": "banana"}, taint("gpu")), start)
	tr.SetNode(labelled("a", "2", nil), start)
	nodes := tr.Nodes()
	require.Len(t, nodes, 2, "a node that only a pod names is not known")
	require.Equal(t, "a", nodes[0].Name)
	require.Empty(t, nodes[0].Labels)
	require.Equal(t, "banana", nodes[1].Labels.Get("pool"))
	require.Equal(t, taint("gpu"), nodes[1].Taints[0].Native())
	tr.SetNode(labelled("c", "2", nil, bare("gpu")), start)
	require.Equal(t, bare("gpu"), tr.Nodes()[2].Taints[0].Native(), "a time that the node does not have is not made up")

	tr.SetNode(labelled("b", "3", map[string]string{"pool": "apple"}, taint("gpu")), start)
	require.Equal(t, "apple", tr.Nodes()[1].Labels.Get("pool"), "labels change although the taints do not")
}

func TestEachPodVisitsEveryPodOnce(t *testing.T) {
	t.Parallel()
	tr := tracker.New()
	for _, name := range []string{"a", "b", "c"} {
		tr.SetPod(pod(name, "n-"+name, 1))
	}
	tr.SetPod(pod("d", "n-a", 1))
	tr.SetPod(pod("waiting", "", 1))
	var names []string
	tr.EachPod(func(p *tracker.Pod) {
		names = append(names, p.Name)
		tr.DeletePod(p.Key) // no lock is held
	})
	require.ElementsMatch(t, []string{"a", "b", "c", "d"}, names)
}

// TestNodesAreToldOfOnceTheyChange pins what whoever keeps the list of nodes goes by.
func TestNodesAreToldOfOnceTheyChange(t *testing.T) {
	t.Parallel()
	tr := tracker.New()
	version := 0
	write := func(labels map[string]string, taints ...corev1.Taint) {
		version++
		n := &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}}
		n.ObjectMeta = metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: strconv.Itoa(version), Labels: labels}
		tr.SetNode(tracker.NodeOf(n), start)
	}
	soft := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}
	zone := map[string]string{"zone": "a"}
	before := tr.NodesVersion()
	changes := func() bool {
		was := before
		before = tr.NodesVersion()
		return before != was
	}

	write(zone, soft)
	require.True(t, changes(), "it comes")
	require.Equal(t, []corev1.Taint{soft}, tr.Nodes()[0].Written)
	require.Empty(t, tr.Nodes()[0].Taints)
	dated := soft
	dated.TimeAdded = new(metav1.NewTime(start))
	write(zone, dated)
	require.False(t, changes(), "neither a heartbeat nor a time")
	write(map[string]string{"zone": "b"}, dated)
	require.True(t, changes(), "a label")
	other := soft
	other.Value = "x"
	write(map[string]string{"zone": "b"}, other)
	require.True(t, changes(), "a value")
	write(map[string]string{"zone": "b"})
	require.True(t, changes(), "a taint that goes")
	tr.SetPod(pod("p", "a", 1))
	require.False(t, changes(), "pods do not matter")
	tr.DeleteNode("a", "other")
	require.False(t, changes())
	tr.DeleteNode("a", "u")
	require.True(t, changes(), "it goes")
}
