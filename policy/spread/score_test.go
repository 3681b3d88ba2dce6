package spread

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// all returns the places of all nodes.
func all(c *Cluster) []int {
	places := make([]int, len(c.Nodes()))
	for i := range places {
		places[i] = i
	}
	return places
}

func TestTS13Scores(t *testing.T) {
	t.Parallel()
	zones := []Node{node("a", "zone=a,kubernetes.io/hostname=a"), node("b", "zone=b,kubernetes.io/hostname=b", "gpu:NoSchedule"), node("b2", "zone=b,kubernetes.io/hostname=b2")}
	pods := slices.Concat(on("a", 1), on("b", 3))
	tests := map[string]struct {
		pod    *corev1.Pod
		counts [][]int
		scores []int64
	}{
		"with Ignore nodes with taints count": {
			pod: pod(by("zone", softly)), counts: [][]int{{1}, {3}, {3}}, scores: []int64{100, 25, 25},
		},
		"with Honor they do not": {
			pod: pod(by("zone", softly, taintsPolicy(honor))), counts: [][]int{{1}, {0}, {0}}, scores: []int64{0, 100, 100},
		},
		"the pods of a host count whether it does or not": {
			pod: pod(by("kubernetes.io/hostname", softly, taintsPolicy(honor))), counts: [][]int{{1}, {3}, {0}}, scores: []int64{60, 0, 100},
		},
		"constraints with DoNotSchedule do not count": {
			pod: pod(by("zone", softly), by("kubernetes.io/hostname")), counts: [][]int{{1}, {3}, {3}}, scores: []int64{100, 25, 25},
		},
		"without pods all nodes are liked": {
			pod: pod(by("zone", softly), func(p *corev1.Pod) { p.Namespace = "empty" }), counts: [][]int{{0}, {0}, {0}}, scores: []int64{100, 100, 100},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := NewCluster(zones, pods)
			scored := read(t, test.pod).Score(cluster, all(cluster))
			var counts [][]int
			var scores []int64
			for _, n := range scored.Nodes {
				counts, scores = append(counts, n.Counts), append(scores, n.Score)
			}
			require.Equal(t, test.counts, counts)
			require.Equal(t, test.scores, scores)
		})
	}
}

func TestTS05ScoreOfNodesThatLackAKey(t *testing.T) {
	t.Parallel()
	cluster := NewCluster([]Node{node("a", "topology.kubernetes.io/zone=a,kubernetes.io/hostname=a"), node("b", "kubernetes.io/hostname=b")}, on("b", 1))

	t.Run("constraints of the pod pass over them", func(t *testing.T) {
		t.Parallel()
		s := read(t, pod(by(corev1.LabelTopologyZone, softly), by(corev1.LabelHostname, softly)))
		require.Equal(t, []NodeScore{{Node: 0, Counts: []int{0, 0}, Score: 100}, {Node: 1, Ignored: true}}, s.Score(cluster, all(cluster)).Nodes)
	})
	t.Run("TS-15 those of the system do not", func(t *testing.T) {
		t.Parallel()
		s, err := Read(pod(), Options{Defaults: SystemDefaults(labels.SelectorFromSet(labels.Set{"app": "web"}))})
		require.NoError(t, err)
		scored := s.Score(cluster, all(cluster)).Nodes
		// A key that is missing adds nothing, not even what maxSkew adds, so b is liked better
		// in spite of its pod. That is the scheduler's.
		require.Equal(t, []NodeScore{
			{Node: 0, Counts: []int{0, 0}, Raw: 2 + 4, Score: 50},
			{Node: 1, Counts: []int{1, -1}, Raw: 3, Score: 100},
		}, scored)
	})
}
