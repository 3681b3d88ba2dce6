package spread

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWedges(t *testing.T) {
	t.Parallel()
	nodes := []Node{
		node("a1", "zone=a,host=a1"), node("b1", "zone=b,host=b1"), node("b2", "zone=b,host=b2", "gpu=x:NoSchedule"),
		node("c1", "zone=c,host=c1", "gpu=x:NoSchedule", "net:NoExecute"), node("c2", "zone=c,host=c2", "net:NoExecute"),
	}
	tests := map[string]struct {
		pod   *corev1.Pod
		nodes []Node
		want  []string
	}{
		"TS-06 a domain in which every node has a taint": {
			pod: pod(by("zone")), want: []string{"zone (DoNotSchedule): c of 2, gpu=x:NoSchedule net:NoExecute"},
		},
		"each constraint on its own": {
			pod: pod(by("zone"), by("host")), want: []string{
				"zone (DoNotSchedule): c of 2, gpu=x:NoSchedule net:NoExecute",
				"host (DoNotSchedule): b2 c1 c2 of 2, gpu=x:NoSchedule net:NoExecute",
			},
		},
		"TS-03 only the taints that are not tolerated": {
			pod: pod(by("zone"), tolerating(exists("gpu"))), want: []string{"zone (DoNotSchedule): c of 2, net:NoExecute"},
		},
		"TS-01 Ignore is as if nothing was said": {
			pod: pod(by("zone", taintsPolicy(ignore))), want: []string{"zone (DoNotSchedule): c of 2, gpu=x:NoSchedule net:NoExecute"},
		},
		"not where taints are honoured":      {pod: pod(by("zone", taintsPolicy(honor)))},
		"not with ScheduleAnyway":            {pod: pod(by("zone", softly))},
		"not without constraints":            {pod: pod()},
		"not where all taints are tolerated": {pod: pod(by("zone"), tolerating(exists("gpu"), exists("net")))},
		"TS-10 not without a selector":       {pod: pod(by("zone", selecting(nil)))},
		"TS-10 not with the empty selector":  {pod: pod(by("zone", selecting(&metav1.LabelSelector{})))},
		"TS-07 not where the pod itself is not counted": {
			pod: pod(by("zone", selecting(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}}))),
		},
		"TS-02 not where affinity leaves the domain out": {pod: pod(by("zone"), selectingNodes("zone=b"))},
		"TS-02 where affinity is ignored the domain counts": {
			pod: pod(by("zone", affinityPolicy(ignore)), selectingNodes("zone=b")), want: []string{"zone (DoNotSchedule): c of 2, gpu=x:NoSchedule net:NoExecute"},
		},
		"TS-05 not where its nodes lack another key": {
			pod: pod(by("zone"), by("rack", taintsPolicy(honor))), nodes: []Node{node("a", "zone=a,rack=1"), node("c", "zone=c", "gpu:NoSchedule")},
		},
		"TS-09 not where Honor would leave too few domains": {pod: pod(by("zone", minDomains(3)))},
		"TS-09 where it leaves enough": {
			pod: pod(by("zone", minDomains(2))), want: []string{"zone (DoNotSchedule): c of 2, gpu=x:NoSchedule net:NoExecute"},
		},
		"not where taints keep the pod from all nodes":  {pod: pod(by("zone")), nodes: nodes[2:]},
		"not where the pod matches no node without any": {pod: pod(by("zone"), selectingNodes("zone=c"))},
		"not on an empty cluster":                       {pod: pod(by("zone")), nodes: []Node{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.nodes == nil {
				test.nodes = nodes
			}
			var found []string
			for _, w := range read(t, test.pod).Wedges(test.nodes) {
				taints := make([]string, 0, len(w.Taints))
				for i := range w.Taints {
					taints = append(taints, w.Taints[i].ToString())
				}
				found = append(found, fmt.Sprintf("%s (%s): %s of %d, %s", w.Constraint.TopologyKey, w.Constraint.WhenUnsatisfiable, strings.Join(w.Domains, " "), w.Usable, strings.Join(taints, " ")))
			}
			require.Equal(t, test.want, found)
		})
	}
}

// TestTS06AWedgeHoldsAndHonorLetsGo places pods one after the other: at some point none fits
// any more, unless the constraint honours taints.
func TestTS06AWedgeHoldsAndHonorLetsGo(t *testing.T) {
	t.Parallel()
	nodes := []Node{node("a", "zone=a"), node("b", "zone=b"), node("c", "zone=c", "gpu:NoSchedule")}
	placed := func(s *Spreading) int {
		var pods []Placed
		for range 10 {
			cluster := NewCluster(nodes, pods)
			at := slices.IndexFunc(s.Filter(cluster).Verdicts[:2], func(v Verdict) bool { return v.Code() == Success })
			if at < 0 {
				break
			}
			pods = append(pods, on(nodes[at].Name, 1)...)
		}
		return len(pods)
	}
	s := read(t, pod(by("zone", maxSkew(2))))
	wedges := s.Wedges(nodes)
	require.Len(t, wedges, 1)
	require.Equal(t, 4, wedges[0].Most, "maxSkew in each domain that the pod can use")
	require.Equal(t, wedges[0].Most, placed(s))
	honouring := s.withTaintsPolicy(honor)
	require.Empty(t, honouring.Wedges(nodes))
	require.Equal(t, 10, placed(honouring))
}
