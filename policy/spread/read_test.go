package spread

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTS14WhatTheAPIServerRefuses(t *testing.T) {
	t.Parallel()
	sometimes := corev1.NodeInclusionPolicy("Sometimes")
	tests := map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"maxSkew is not positive": {
			pod: pod(by("zone", maxSkew(0))), want: "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than 0",
		},
		"no key": {pod: pod(by("")), want: "spec.topologySpreadConstraints[0].topologyKey: Required value: must name a label of nodes"},
		"another action": {
			pod:  pod(by("zone", func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = "Wait" })),
			want: `spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Wait": supported values: "DoNotSchedule", "ScheduleAnyway"`,
		},
		"another nodeTaintsPolicy": {
			pod:  pod(by("zone", taintsPolicy(sometimes))),
			want: `spec.topologySpreadConstraints[0].nodeTaintsPolicy: Unsupported value: "Sometimes": supported values: "Honor", "Ignore"`,
		},
		"another nodeAffinityPolicy": {
			pod:  pod(by("zone", affinityPolicy(sometimes))),
			want: `spec.topologySpreadConstraints[0].nodeAffinityPolicy: Unsupported value: "Sometimes": supported values: "Honor", "Ignore"`,
		},
		"the same constraint twice": {
			pod:  pod(by("zone"), by("zone", maxSkew(2))),
			want: `spec.topologySpreadConstraints[1].{topologyKey, whenUnsatisfiable}: Duplicate value: "zone, DoNotSchedule"`,
		},
		"TS-09 minDomains of none": {
			pod: pod(by("zone", minDomains(0))), want: "spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater than 0",
		},
		"TS-09 minDomains with ScheduleAnyway": {
			pod:  pod(by("zone", minDomains(2), softly)),
			want: "spec.topologySpreadConstraints[0].minDomains: Invalid value: 2: may only be set with whenUnsatisfiable DoNotSchedule",
		},
		"a selector that cannot be read": {
			pod:  pod(by("zone"), by("rack", selecting(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}))),
			want: `spec.topologySpreadConstraints[1]: read labelSelector: "Like" is not a valid label selector operator`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(test.pod, Options{})
			require.EqualError(t, err, test.want)
		})
	}
	t.Run("the same key with both actions is fine", func(t *testing.T) {
		t.Parallel()
		require.Len(t, read(t, pod(by("zone"), by("zone", softly))).Constraints(), 2)
	})
}

// TS-02: what a node has to match is matched as the scheduler does.
func TestTS02RequiredNodes(t *testing.T) {
	t.Parallel()
	expression := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	byField := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	emptyRequired := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}}
	}
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"nothing is required":                 {change: func(*corev1.Pod) {}, want: true},
		"affinity to pods is not to nodes":    {change: func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{} }, want: true},
		"what is preferred is not required":   {change: func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}} }, want: true},
		"a label of the selector":             {change: selectingNodes("zone=a"), want: true},
		"another label of the selector":       {change: selectingNodes("zone=a,disk=ssd")},
		"In":                                  {change: requiring(expression("zone", "In", "b", "a")), want: true},
		"NotIn":                               {change: requiring(expression("zone", "NotIn", "a"))},
		"Exists":                              {change: requiring(expression("zone", "Exists")), want: true},
		"DoesNotExist":                        {change: requiring(expression("zone", "DoesNotExist"))},
		"Gt":                                  {change: requiring(expression("cores", "Gt", "4")), want: true},
		"Lt":                                  {change: requiring(expression("cores", "Lt", "4"))},
		"the name":                            {change: requiring(byField("metadata.name", "In", "n")), want: true},
		"not the name":                        {change: requiring(byField("metadata.name", "NotIn", "n"))},
		"another field is empty":              {change: requiring(byField("metadata.uid", "In", "n"))},
		"another field is not what it is not": {change: requiring(byField("metadata.uid", "NotIn", "n")), want: true},
		"no term matches nothing":             {change: emptyRequired},
		"an empty term matches nothing":       {change: requiring(corev1.NodeSelectorTerm{})},
		"a term that cannot be read matches nothing": {change: requiring(expression("zone", "Like", "a"))},
		"nor does a field with two names":            {change: requiring(byField("metadata.name", "In", "n", "m"))},
		"nor does a field that is compared":          {change: requiring(byField("metadata.name", "Gt", "1"))},
		"one term is enough": {change: func(p *corev1.Pod) {
			requiring(expression("zone", "Like"))(p)
			requiring(expression("zone", "Exists"))(p)
		}, want: true},
		"all of a term have to match":                 {change: requiring(corev1.NodeSelectorTerm{MatchExpressions: expression("zone", "Exists").MatchExpressions, MatchFields: byField("metadata.name", "In", "m").MatchFields})},
		"the selector and the affinity have to match": {change: func(p *corev1.Pod) { selectingNodes("zone=b")(p); requiring(expression("zone", "Exists"))(p) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pod(test.change)
			s := &Spreading{required: readRequired(&p.Spec)}
			n := node("n", "zone=a,cores=8")
			require.Equal(t, test.want, s.Affine(&n))
		})
	}
	t.Run("a node without labels", func(t *testing.T) {
		t.Parallel()
		p := pod(selectingNodes("zone=a"))
		s := &Spreading{required: readRequired(&p.Spec)}
		require.False(t, s.Affine(&Node{Name: "n"}))
	})
}

func TestPodsThatTheSchedulerSeesOnNodes(t *testing.T) {
	t.Parallel()
	placed := func(phase corev1.PodPhase, node string) bool {
		p := pod()
		p.Status.Phase, p.Spec.NodeName = phase, node
		_, ok := PlacedOf(p)
		return ok
	}
	require.True(t, placed(corev1.PodRunning, "a"))
	require.True(t, placed(corev1.PodPending, "a"))
	require.False(t, placed(corev1.PodPending, ""))
	require.False(t, placed(corev1.PodSucceeded, "a"))
	require.False(t, placed(corev1.PodFailed, "a"))
}
