package tightening

import (
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// notALabelValue is what an older API server accepted as a value of a required term.
const notALabelValue = "-no label value-"

// generateUpdate returns a stored pod and an update of it.
func generateUpdate(r *rand.Rand) (old, pod *corev1.Pod) {
	old = generatePod(r)
	if r.IntN(10) == 0 {
		addOldTerm(r, old)
	}
	return old, changePod(r, old)
}

// generatePod returns a pod as the API server stores it, held by scheduling gates three
// times out of four. An API server accepts it for creation too. No scheduler has its name.
func generatePod(r *rand.Rand) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "directives-", Labels: map[string]string{"app": "directives"}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(false),
			Containers:                    []corev1.Container{{Name: "main", Image: "registry.example.com/main:1"}},
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(0)),
			SchedulerName:                 "nobody",
			Priority:                      new(int32(0)),
			NodeSelector:                  nodeSelector(r),
			Affinity:                      affinity(r),
		},
	}
	if r.IntN(4) > 0 {
		for _, name := range sample(r, gateNames, 1+r.IntN(3)) {
			pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
		}
	}
	if r.IntN(3) == 0 {
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{spreadConstraint(r)}
	}
	return pod
}

// addOldTerm gives pod a required term with a value that no label can have, as an older
// API server may have stored it. An API server of today refuses to create such a pod.
func addOldTerm(r *rand.Rand, pod *corev1.Pod) {
	term := requiredTerm(r, pod)
	term.MatchExpressions = append(term.MatchExpressions, requirement(pick(r, labelKeys), corev1.NodeSelectorOpIn, notALabelValue))
}

var (
	gateNames = []string{"example.com/quota", "example.com/topology", "example.com/budget", "hold"}
	labelKeys = []string{"zone", "disk", "example.com/rack", "kubernetes.io/arch"}
	labels    = []string{"a", "b", "c", "ssd", "amd64"}
	nodeNames = []string{"node-0", "node-1", "node-2.example.com"}
)

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func sample[T any](r *rand.Rand, from []T, n int) []T {
	shuffled := slices.Clone(from)
	r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	return shuffled[:n]
}

func nodeSelector(r *rand.Rand) map[string]string {
	if r.IntN(3) == 0 {
		return nil
	}
	selector := map[string]string{}
	for _, key := range sample(r, labelKeys, r.IntN(3)) {
		selector[key] = pick(r, labels)
	}
	return selector
}

// affinity returns every shape that tells a rule from its neighbour: none at all,
// empty, an empty node affinity, only preferred terms, empty and full required ones.
func affinity(r *rand.Rand) *corev1.Affinity {
	switch r.IntN(8) {
	case 0:
		return nil
	case 1:
		return &corev1.Affinity{}
	}
	a := &corev1.Affinity{}
	if r.IntN(5) > 0 {
		a.NodeAffinity = &corev1.NodeAffinity{}
		if r.IntN(5) > 0 {
			a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms(r)}
		}
		if r.IntN(4) == 0 {
			a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{preferredTerm(r)}
		}
	}
	if r.IntN(5) == 0 {
		a.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{podTerm(r)}}
	}
	if r.IntN(5) == 0 {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{podTerm(r)}}
	}
	return a
}

func terms(r *rand.Rand) []corev1.NodeSelectorTerm {
	list := make([]corev1.NodeSelectorTerm, 1+r.IntN(3))
	for i := range list {
		list[i] = term(r)
	}
	return list
}

func term(r *rand.Rand) corev1.NodeSelectorTerm {
	var t corev1.NodeSelectorTerm
	for range r.IntN(3) {
		t.MatchExpressions = append(t.MatchExpressions, expression(r))
	}
	if r.IntN(4) == 0 {
		t.MatchFields = append(t.MatchFields, nameRequirement(r))
	}
	return t
}

func expression(r *rand.Rand) corev1.NodeSelectorRequirement {
	key := pick(r, labelKeys)
	switch r.IntN(5) {
	case 0:
		return requirement(key, corev1.NodeSelectorOpExists)
	case 1:
		return requirement(key, corev1.NodeSelectorOpGt, "7")
	case 2:
		return requirement(key, corev1.NodeSelectorOpNotIn, pick(r, labels))
	default:
		return requirement(key, corev1.NodeSelectorOpIn, sample(r, labels, 1+r.IntN(3))...)
	}
}

func nameRequirement(r *rand.Rand) corev1.NodeSelectorRequirement {
	operator := pick(r, []corev1.NodeSelectorOperator{corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn})
	return requirement("metadata.name", operator, pick(r, nodeNames))
}

func preferredTerm(r *rand.Rand) corev1.PreferredSchedulingTerm {
	return corev1.PreferredSchedulingTerm{Weight: 1 + r.Int32N(100), Preference: term(r)}
}

func podTerm(r *rand.Rand) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{
		TopologyKey:   pick(r, labelKeys),
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(r, labels)}},
	}
}

func spreadConstraint(r *rand.Rand) corev1.TopologySpreadConstraint {
	return corev1.TopologySpreadConstraint{
		MaxSkew:           1 + r.Int32N(3),
		TopologyKey:       pick(r, labelKeys),
		WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "directives"}},
	}
}
