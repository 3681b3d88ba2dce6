package spread

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// draw makes up clusters and pods.
type draw struct{ *rand.Rand }

func (d draw) cluster() *Cluster {
	nodes, pods := make([]Node, 1+d.IntN(8)), []Placed{}
	for i := range nodes {
		nodes[i] = Node{Name: "n" + strconv.Itoa(i)}
		has := labels.Set{}
		for _, key := range []string{"zone", "rack", "disk"} {
			if d.IntN(5) > 0 {
				has[key] = string(rune('a' + d.IntN(3)))
			}
		}
		nodes[i].Labels = has
		if d.IntN(3) == 0 {
			nodes[i].Taints = []corev1.Taint{{Key: [2]string{"gpu", "net"}[d.IntN(2)], Effect: corev1.TaintEffectNoSchedule}}
		}
		pods = append(pods, on(nodes[i].Name, d.IntN(3))...)
	}
	return NewCluster(nodes, pods)
}

func (d draw) pod() *corev1.Pod {
	var changes []func(*corev1.Pod)
	for _, key := range []string{"zone", "rack"} {
		policies := []func(*corev1.TopologySpreadConstraint){
			func(*corev1.TopologySpreadConstraint) {}, taintsPolicy(honor), affinityPolicy(ignore), minDomains(1 + d.Int32N(3)),
		}
		if d.IntN(3) > 0 {
			changes = append(changes, by(key, policies[d.IntN(4)], policies[d.IntN(4)]))
		}
	}
	if d.IntN(3) == 0 {
		changes = append(changes, tolerating(exists("gpu")))
	}
	if d.IntN(3) == 0 {
		changes = append(changes, selectingNodes("disk=a"))
	}
	return pod(changes...)
}

// A wedge is what its comment says: domains that count as the constraint stands and that
// Honor leaves out, found without counting. The oracle counts.
func TestWedgesAreTheDomainsThatHonorLeavesOut(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	found := 0
	for i := range 5000 {
		d := draw{rand.New(rand.NewPCG(seed, uint64(i)))}
		cluster, p := d.cluster(), d.pod()
		s := read(t, p)
		want := expectedWedges(s, cluster)
		got := map[string][]string{}
		for _, w := range s.Wedges(cluster.Nodes()) {
			got[w.Constraint.TopologyKey] = w.Domains
			require.NotEmpty(t, w.Taints)
		}
		require.Equal(t, want, got, "world %d of seed %d", i, seed)
		found += len(got)
	}
	require.Greater(t, found, 200)
}

func expectedWedges(s *Spreading, cluster *Cluster) map[string][]string {
	want := map[string][]string{}
	counts, honoured := s.Filter(cluster).Counts, s.SideBySide(cluster).Honor.Counts
	if !slices.ContainsFunc(cluster.Nodes(), func(n Node) bool { return s.usable(&n) }) {
		return want
	}
	for i := range counts {
		if len(honoured[i].Domains) < counts[i].Constraint.MinDomains {
			continue
		}
		for _, d := range counts[i].Domains {
			if honoured[i].Domain(d.Value).Nodes == 0 {
				want[counts[i].Constraint.TopologyKey] = append(want[counts[i].Constraint.TopologyKey], d.Value)
			}
		}
	}
	return want
}

// usable reports whether the pod can go to a node but for spread and room.
func (s *Spreading) usable(n *Node) bool {
	return s.untolerated(n.Taints) == nil && s.Affine(n) && n.missingKey(s.hard()) == nil
}

// The order of nodes and pods changes nothing.
func TestOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i := range 500 {
		d := draw{rand.New(rand.NewPCG(seed, uint64(i)))}
		cluster, p := d.cluster(), d.pod()
		nodes, pods := slices.Clone(cluster.nodes), slices.Clone(cluster.pods)
		d.Shuffle(len(nodes), func(a, b int) { nodes[a], nodes[b] = nodes[b], nodes[a] })
		d.Shuffle(len(pods), func(a, b int) { pods[a], pods[b] = pods[b], pods[a] })
		shuffled := NewCluster(nodes, pods)
		s := read(t, p)
		was, is := s.Filter(cluster), s.Filter(shuffled)
		for i := range was.Counts {
			require.Equal(t, was.Counts[i].Domains, is.Counts[i].Domains, "seed %d", seed)
		}
		for name, at := range cluster.positions {
			require.Equal(t, was.Verdicts[at], is.Verdicts[shuffled.positions[name]], "seed %d", seed)
		}
	}
}
