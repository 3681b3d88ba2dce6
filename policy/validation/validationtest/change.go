package validationtest

import (
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// A change alters one directive of a pod. Where the pod has nothing that it could
// alter, it leaves the pod as it is.
type change struct {
	name  string
	apply func(r *rand.Rand, pod *corev1.Pod)
}

// Change returns an update of old: a copy with up to three changes.
func Change(r *rand.Rand, old *corev1.Pod) *corev1.Pod {
	pod := old.DeepCopy()
	all, narrowing := allChanges(), narrowingChanges()
	for range 1 + r.IntN(3) {
		if r.IntN(100) < 40 {
			pick(r, all).apply(r, pod)
			continue
		}
		pick(r, narrowing).apply(r, pod)
	}
	return pod
}

func allChanges() []change {
	return slices.Concat(gateChanges, selectorChanges, requiredChanges, badTermChanges, affinityChanges, fixedChanges)
}

// narrowingChanges returns those that are allowed on some pods. Change draws most
// of its changes from them, or nearly every update would be refused.
func narrowingChanges() []change {
	return slices.Concat(gateChanges[:3], selectorChanges[:2], requiredChanges[:5], affinityChanges[:4])
}

// The first three are allowed on every pod.
var gateChanges = []change{
	{"the last gate goes", func(_ *rand.Rand, pod *corev1.Pod) { pod.Spec.SchedulingGates = nil }},
	{"one gate goes", func(r *rand.Rand, pod *corev1.Pod) {
		if n := len(pod.Spec.SchedulingGates); n > 0 {
			i := r.IntN(n)
			pod.Spec.SchedulingGates = slices.Delete(pod.Spec.SchedulingGates, i, i+1)
		}
	}},
	{"gates in another order", func(_ *rand.Rand, pod *corev1.Pod) { slices.Reverse(pod.Spec.SchedulingGates) }},
	{"a gate comes", func(_ *rand.Rand, pod *corev1.Pod) { addGate(pod, "example.com/late") }},
	{"a gate is replaced", func(r *rand.Rand, pod *corev1.Pod) {
		if n := len(pod.Spec.SchedulingGates); n > 0 {
			pod.Spec.SchedulingGates[r.IntN(n)].Name = "example.com/late"
		}
	}},
	{"a gate twice", func(_ *rand.Rand, pod *corev1.Pod) {
		if len(pod.Spec.SchedulingGates) > 0 {
			addGate(pod, pod.Spec.SchedulingGates[0].Name)
		}
	}},
	{"a new gate twice", func(_ *rand.Rand, pod *corev1.Pod) {
		addGate(pod, "example.com/late")
		addGate(pod, "example.com/late")
	}},
	{"a gate without a proper name", func(r *rand.Rand, pod *corev1.Pod) {
		addGate(pod, pick(r, []string{"", "two/slashes/here", "-dash", "Upper.Example.Com/x"}))
	}},
}

func addGate(pod *corev1.Pod, name string) {
	pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
}

// The first two are allowed on pods that are held.
var selectorChanges = []change{
	{"a selector key comes", func(r *rand.Rand, pod *corev1.Pod) { setSelector(pod, "example.com/new", pick(r, labels)) }},
	{"another selector key comes", func(r *rand.Rand, pod *corev1.Pod) {
		if key := pick(r, labelKeys); pod.Spec.NodeSelector[key] == "" {
			setSelector(pod, key, pick(r, labels))
		}
	}},
	{"a selector key goes", func(r *rand.Rand, pod *corev1.Pod) { delete(pod.Spec.NodeSelector, pick(r, labelKeys)) }},
	{"a selector value changes", func(r *rand.Rand, pod *corev1.Pod) {
		if key := pick(r, labelKeys); pod.Spec.NodeSelector[key] != "" {
			pod.Spec.NodeSelector[key] = "other"
		}
	}},
	{"a selector value empties", func(r *rand.Rand, pod *corev1.Pod) { setSelector(pod, pick(r, labelKeys), "") }},
	{"the selector goes", func(_ *rand.Rand, pod *corev1.Pod) { pod.Spec.NodeSelector = nil }},
	{"an empty selector", func(_ *rand.Rand, pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{} }},
	{"a bad selector key", func(_ *rand.Rand, pod *corev1.Pod) { setSelector(pod, "bad key", "a") }},
	{"a bad selector value", func(_ *rand.Rand, pod *corev1.Pod) { setSelector(pod, "zone", notALabelValue) }},
}

func setSelector(pod *corev1.Pod, key, value string) {
	if pod.Spec.NodeSelector == nil {
		pod.Spec.NodeSelector = map[string]string{}
	}
	pod.Spec.NodeSelector[key] = value
}

// None of these is allowed on any pod, unless it repeats what the pod has.
var fixedChanges = []change{
	{"pod affinity changes", func(r *rand.Rand, pod *corev1.Pod) {
		affinityOf(pod).PodAffinity = &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{podTerm(r)},
		}
	}},
	{"pod affinity goes", func(_ *rand.Rand, pod *corev1.Pod) {
		if pod.Spec.Affinity != nil {
			pod.Spec.Affinity.PodAffinity = nil
		}
	}},
	{"pod anti-affinity changes", func(r *rand.Rand, pod *corev1.Pod) {
		affinityOf(pod).PodAntiAffinity = &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{podTerm(r)},
		}
	}},
	{"empty pod anti-affinity", func(_ *rand.Rand, pod *corev1.Pod) {
		affinityOf(pod).PodAntiAffinity = &corev1.PodAntiAffinity{}
	}},
	{"spreading changes", func(r *rand.Rand, pod *corev1.Pod) {
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{spreadConstraint(r)}
	}},
	{"spreading goes", func(_ *rand.Rand, pod *corev1.Pod) { pod.Spec.TopologySpreadConstraints = nil }},
	{"empty spreading", func(_ *rand.Rand, pod *corev1.Pod) {
		if len(pod.Spec.TopologySpreadConstraints) == 0 {
			pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{}
		}
	}},
	{"another scheduler", func(_ *rand.Rand, pod *corev1.Pod) { pod.Spec.SchedulerName = "somebody" }},
	{"another priority", func(_ *rand.Rand, pod *corev1.Pod) { pod.Spec.Priority = new(int32(7)) }},
	{"another scheduling group", func(r *rand.Rand, pod *corev1.Pod) {
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("group-" + pick(r, labels))}
	}},
}
