package spread

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFilter(t *testing.T) {
	t.Parallel()
	zones := []Node{node("a1", "zone=a"), node("a2", "zone=a"), node("b1", "zone=b")}
	// In zone c every node has a taint, and one of zone b.
	tainted := append(slices.Clone(zones), node("b2", "zone=b", "gpu:NoExecute"), node("c1", "zone=c", "gpu=x:NoSchedule"))
	oneEach := slices.Concat(on("a1", 1), on("b1", 1))
	seconds := int64(5)
	tests := map[string]struct {
		nodes []Node
		pods  []Placed
		pod   *corev1.Pod
		// want is what the first constraint counts, and pass the nodes that the pod may
		// go to.
		want, pass string
	}{
		"TS-01 by default affinity is honoured": {
			nodes: zones, pods: oneEach, pod: pod(by("zone"), selectingNodes("zone=a")), want: "a:1 min:1", pass: "a1 a2 b1",
		},
		"TS-01 by default taints are ignored": {
			nodes: tainted, pods: oneEach, pod: pod(by("zone")), want: "a:1 b:1 c:0 min:0", pass: "c1",
		},
		"TS-01 by default one domain is enough": {
			nodes: zones[:2], pods: on("a1", 5), pod: pod(by("zone")), want: "a:5 min:5", pass: "a1 a2",
		},
		"TS-02 with Honor only nodes count that match nodeSelector and affinity": {
			nodes: []Node{node("a", "zone=a,disk=ssd,arch=arm"), node("b", "zone=b,disk=ssd"), node("c", "zone=c,arch=arm")},
			pod: pod(by("zone", affinityPolicy(honor)), selectingNodes("disk=ssd"), requiring(corev1.NodeSelectorTerm{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "arch", Operator: corev1.NodeSelectorOpExists}},
			})),
			want: "a:0 min:0", pass: "a b c",
		},
		"TS-02 with Ignore all nodes count": {
			nodes: zones, pods: oneEach, pod: pod(by("zone", affinityPolicy(ignore)), selectingNodes("zone=a")), want: "a:1 b:1 min:1", pass: "a1 a2 b1",
		},
		"TS-03 with Honor nodes with a taint that is not tolerated do not count": {
			nodes: tainted, pods: oneEach, pod: pod(by("zone", taintsPolicy(honor))), want: "a:1 b:1 min:1", pass: "a1 a2 b1 b2 c1",
		},
		"TS-03 with Honor nodes count whose taints are tolerated": {
			nodes: tainted, pods: oneEach, pod: pod(by("zone", taintsPolicy(honor)), tolerating(exists("gpu"))), want: "a:1 b:1 c:0 min:0", pass: "c1",
		},
		"TS-03 a taint with PreferNoSchedule does not matter": {
			nodes: []Node{node("a", "zone=a", "gpu:PreferNoSchedule")}, pod: pod(by("zone", taintsPolicy(honor))), want: "a:0 min:0", pass: "a",
		},
		"TS-03 a cordoned node does not count": {
			nodes: []Node{node("a", "zone=a"), node("b", "zone=b", "node.kubernetes.io/unschedulable:NoSchedule")},
			pods:  on("a", 1), pod: pod(by("zone", taintsPolicy(honor))), want: "a:1 min:1", pass: "a b",
		},
		"TS-03 a cordoned node counts if that is tolerated": {
			nodes: []Node{node("a", "zone=a"), node("b", "zone=b", "node.kubernetes.io/unschedulable:NoSchedule")},
			pods:  on("a", 1), pod: pod(by("zone", taintsPolicy(honor)), tolerating(exists("node.kubernetes.io/unschedulable"))),
			want: "a:1 b:0 min:0", pass: "b",
		},
		"TS-03 a taint that is tolerated with another effect keeps away": {
			nodes: tainted, pods: oneEach,
			pod: pod(by("zone", taintsPolicy(honor)), tolerating(corev1.Toleration{
				Key: "gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			})),
			want: "a:1 b:1 min:1", pass: "a1 a2 b1 b2 c1",
		},
		"TS-04 a toleration that ends counts as one": {
			nodes: []Node{node("a", "zone=a", "gpu:NoExecute")},
			pod: pod(by("zone", taintsPolicy(honor)), tolerating(corev1.Toleration{
				Key: "gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
			})),
			want: "a:0 min:0", pass: "a",
		},
		"TS-05 a node without the key of one constraint counts for none": {
			nodes: []Node{node("a", "zone=a,host=a"), node("b", "zone=b")}, pods: slices.Concat(on("a", 1), on("b", 3)),
			pod: pod(by("zone"), by("host")), want: "a:1 min:1", pass: "a",
		},
		"TS-05 a key of a constraint with ScheduleAnyway may be missing": {
			nodes: []Node{node("a", "zone=a,host=a"), node("b", "zone=b")}, pods: on("a", 1),
			pod: pod(by("zone"), by("host", softly)), want: "a:1 b:0 min:0", pass: "b",
		},
		"TS-05 each constraint has its own policies": {
			nodes: tainted, pods: oneEach, pod: pod(by("zone", taintsPolicy(honor)), by("zone2", softly)),
			want: "a:1 b:1 min:1", pass: "a1 a2 b1 b2 c1",
		},
		"TS-06 the pods of a node that does not count do not either": {
			nodes: tainted, pods: slices.Concat(oneEach, on("b2", 7)), pod: pod(by("zone", taintsPolicy(honor))),
			want: "a:1 b:1 min:1", pass: "a1 a2 b1 b2 c1",
		},
		"TS-07 the pod may not be more than maxSkew ahead": {
			nodes: zones, pods: on("a2", 1), pod: pod(by("zone")), want: "a:1 b:0 min:0", pass: "b1",
		},
		"TS-07 the pod may be maxSkew ahead": {
			nodes: zones, pods: on("a2", 1), pod: pod(by("zone", maxSkew(2))), want: "a:1 b:0 min:0", pass: "a1 a2 b1",
		},
		"TS-07 a pod that does not match its selector is not added": {
			nodes: zones, pods: on("a2", 1), pod: pod(by("zone"), func(p *corev1.Pod) { p.Labels = nil }), want: "a:1 b:0 min:0", pass: "a1 a2 b1",
		},
		"TS-08 the domain of a candidate that does not count has no pods": {
			nodes: []Node{node("a", "zone=a"), node("c", "zone=c", "gpu:NoSchedule")}, pods: slices.Concat(on("a", 1), on("c", 4)),
			pod: pod(by("zone", taintsPolicy(honor))), want: "a:1 min:1", pass: "a c",
		},
		"TS-09 with fewer domains than minDomains the minimum is 0": {
			nodes: zones, pods: oneEach, pod: pod(by("zone", minDomains(3))), want: "a:1 b:1 min:0", pass: "",
		},
		"TS-09 with as many domains as minDomains it is not": {
			nodes: zones, pods: oneEach, pod: pod(by("zone", minDomains(2))), want: "a:1 b:1 min:1", pass: "a1 a2 b1",
		},
		"TS-09 domains that do not count are too few as well": {
			nodes: tainted, pods: oneEach, pod: pod(by("zone", minDomains(3), taintsPolicy(honor))), want: "a:1 b:1 min:0", pass: "c1",
		},
		"TS-10 pods of other namespaces and those that terminate do not count": {
			nodes: zones, pods: []Placed{
				{Namespace: "other", Node: "a1", Labels: labelsOf("app=web")},
				{Namespace: "ns", Node: "a1", Labels: labelsOf("app=web"), Terminating: true},
				{Namespace: "ns", Node: "a1", Labels: labelsOf("app=db")},
				{Namespace: "ns", Node: "a1"},
				{Namespace: "ns", Node: "gone", Labels: labelsOf("app=web")},
			},
			pod: pod(by("zone")), want: "a:0 b:0 min:0", pass: "a1 a2 b1",
		},
		"TS-10 without a selector nothing matches": {
			nodes: zones, pods: on("a1", 5), pod: pod(by("zone", selecting(nil))), want: "a:0 b:0 min:0", pass: "a1 a2 b1",
		},
		"TS-10 the empty selector counts no pods and never blocks": {
			nodes: zones, pods: on("a1", 5), pod: pod(by("zone", selecting(&metav1.LabelSelector{}))), want: "a:0 b:0 min:0", pass: "a1 a2 b1",
		},
		"TS-11 a pod on a node that does not count changes nothing": {
			nodes: tainted, pods: slices.Concat(oneEach, on("c1", 1)), pod: pod(by("zone", taintsPolicy(honor))),
			want: "a:1 b:1 min:1", pass: "a1 a2 b1 b2 c1",
		},
		"matchLabelKeys narrows the selector to the pod's own values": {
			nodes: zones, pods: slices.Concat(on("b1", 1), []Placed{
				{Namespace: "ns", Node: "a1", Labels: labelsOf("app=web,hash=1")},
				{Namespace: "ns", Node: "a1", Labels: labelsOf("app=web,hash=2")},
			}),
			pod:  pod(by("zone", labelKeys("hash", "missing")), func(p *corev1.Pod) { p.Labels["hash"] = "1" }),
			want: "a:1 b:0 min:0", pass: "b1",
		},
		"matchLabelKeys does not make something of no selector": {
			nodes: zones, pods: on("a1", 2), pod: pod(by("zone", selecting(nil), labelKeys("app"))), want: "a:0 b:0 min:0", pass: "a1 a2 b1",
		},
		"an empty value is a domain": {
			nodes: []Node{node("a", "zone="), node("b", "zone=b")}, pods: on("b", 1), pod: pod(by("zone")), want: ":0 b:1 min:0", pass: "a",
		},
		"without nodes there is nothing": {pod: pod(by("zone")), want: "min:0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := NewCluster(test.nodes, test.pods)
			filtered := read(t, test.pod).Filter(cluster)
			require.Equal(t, test.want, told(&filtered.Counts[0]))
			require.Equal(t, test.pass, allowed(cluster, filtered))
		})
	}
}

func TestNodesSayWhyTheyDoNotCount(t *testing.T) {
	t.Parallel()
	cluster := NewCluster([]Node{
		node("a", "zone=a,rack=1,disk=ssd"),
		node("b", "zone=b,disk=ssd", "gpu:NoSchedule"),
		node("c", "zone=c,rack=1", "gpu:NoSchedule"),
		node("d", "zone=d,rack=1,disk=ssd", "soft:PreferNoSchedule", "gpu=x:NoSchedule", "net:NoExecute"),
		{Name: "e"},
	}, slices.Concat(on("a", 1), on("d", 2)))
	s := read(t, pod(by("zone", taintsPolicy(honor)), by("rack", affinityPolicy(ignore)), selectingNodes("disk=ssd")))
	filtered := s.Filter(cluster)
	gpu, valued := &cluster.Nodes()[1].Taints[0], &cluster.Nodes()[3].Taints[1]
	require.Equal(t, []NodeCount{
		{Pods: 1},
		{Why: MissingKey, Key: "rack", Taint: gpu},
		{Why: AffinityMismatch, Taint: &cluster.Nodes()[2].Taints[0]},
		{Why: UntoleratedTaint, Taint: valued, Pods: 2},
		{Why: MissingKey, Key: "zone"},
	}, filtered.Counts[0].Nodes)
	require.Equal(t, []Exclusion{Counted, MissingKey, Counted, Counted, MissingKey}, whys(&filtered.Counts[1]))
	require.Equal(t, []Domain{{Value: "1", Pods: 3, Nodes: 3}}, filtered.Counts[1].Domains)
}

func whys(c *Count) []Exclusion {
	var list []Exclusion
	for _, n := range c.Nodes {
		list = append(list, n.Why)
	}
	return list
}

func TestTS07VerdictsAreTheSchedulers(t *testing.T) {
	t.Parallel()
	cluster := NewCluster([]Node{node("a", "zone=a,rack=1"), node("b", "zone=b"), node("c", "rack=1"), node("d", "zone=d,rack=2")}, on("a", 2))
	filtered := read(t, pod(by("zone"), by("rack"))).Filter(cluster)
	require.Equal(t, []Verdict{
		{Unschedulable, Unschedulable},
		{Success, UnschedulableAndUnresolvable},
		{UnschedulableAndUnresolvable, Unschedulable},
		{Success, Success},
	}, filtered.Verdicts)
	var codes []Code
	for _, v := range filtered.Verdicts {
		codes = append(codes, v.Code())
	}
	require.Equal(t, []Code{Unschedulable, UnschedulableAndUnresolvable, UnschedulableAndUnresolvable, Success}, codes)
}

func TestTS06SideBySide(t *testing.T) {
	t.Parallel()
	cluster := NewCluster([]Node{node("a", "zone=a"), node("b", "zone=b"), node("c", "zone=c", "gpu:NoSchedule")}, slices.Concat(on("a", 1), on("b", 2)))
	both := read(t, pod(by("zone"))).SideBySide(cluster)
	require.Equal(t, "a:1 b:2 min:1", told(&both.Honor.Counts[0]))
	require.Equal(t, "a c", allowed(cluster, both.Honor))
	require.Equal(t, "a:1 b:2 c:0 min:0", told(&both.Ignore.Counts[0]))
	require.Equal(t, "c", allowed(cluster, both.Ignore))
}

// TS-12 is when the scheduler tries a pod again. Each of those changes lets the pod to a
// node where it could not go. That taints keep it from b is not for spread to say.
func TestTS12WhatThePodIsTriedAgainFor(t *testing.T) {
	t.Parallel()
	before := []Node{node("a", "zone=a"), node("a2", "zone=a"), node("b", "zone=b", "gpu:NoSchedule")}
	honouring := by("zone", taintsPolicy(honor), minDomains(2))
	tests := map[string]struct {
		nodes []Node
		pod   *corev1.Pod
		want  string
	}{
		"nothing changes":              {nodes: before, pod: pod(honouring), want: "b"},
		"its tolerations change":       {nodes: before, pod: pod(honouring, tolerating(exists("gpu"))), want: "a a2 b"},
		"a node with all keys comes":   {nodes: append(slices.Clone(before), node("c", "zone=c")), pod: pod(honouring), want: "b c"},
		"a node changes a key's value": {nodes: []Node{before[0], node("a2", "zone=c"), before[2]}, pod: pod(honouring), want: "a2 b"},
		"a node loses a taint":         {nodes: []Node{before[0], before[1], node("b", "zone=b")}, pod: pod(honouring), want: "a a2 b"},
		"an empty domain is there":     {nodes: append(slices.Clone(before), node("c", "zone=c")), pod: pod(by("zone")), want: "c"},
		"its only node is removed":     {nodes: before, pod: pod(by("zone")), want: "a a2 b"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := NewCluster(test.nodes, slices.Concat(on("a", 1), on("b", 1)))
			require.Equal(t, test.want, allowed(cluster, read(t, test.pod).Filter(cluster)))
		})
	}
}

func TestTS04TolerationsCompareWhereTheSchedulerDoes(t *testing.T) {
	t.Parallel()
	cluster := NewCluster([]Node{node("a", "zone=a", "level=5:NoSchedule")}, nil)
	p := pod(by("zone", taintsPolicy(honor)), tolerating(corev1.Toleration{Key: "level", Operator: corev1.TolerationOpLt, Value: "9"}))
	for on, want := range map[bool]string{true: "a:0 min:0", false: "min:0"} {
		s, err := Read(p, Options{ComparisonOperators: on})
		require.NoError(t, err)
		require.Equal(t, want, told(&s.Filter(cluster).Counts[0]))
	}
}
