package kubelet

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// view is what is known of a pod here.
type view struct {
	podIP, hostIP string
	containers    []containerState // in the order of the pod's
	// ending is true once the pod was told to end.
	ending bool
}

// statusOf says in the words of Kubernetes what is known of a pod.
func statusOf(pod *corev1.Pod, v view, now time.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.ObservedGeneration = pod.Generation
	status.Phase = phase(v)
	status.HostIP, status.HostIPs = v.hostIP, []corev1.HostIP{{IP: v.hostIP}}
	status.PodIP, status.PodIPs = v.podIP, []corev1.PodIP{{IP: v.podIP}}
	if status.StartTime == nil {
		status.StartTime = new(metav1.NewTime(now))
	}
	ready := len(v.containers) > 0
	status.ContainerStatuses = nil
	for i, state := range v.containers {
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(&pod.Spec.Containers[i], state))
		ready = ready && state.ready
	}
	done := status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed
	conditions := []condition{
		{corev1.PodReadyToStartContainers, !done},
		{corev1.PodInitialized, true},
		{corev1.ContainersReady, ready},
		{corev1.PodReady, ready},
	}
	for _, c := range conditions {
		status.Conditions = c.in(status.Conditions, pod.Generation, now)
	}
	return status
}

func phase(v view) corev1.PodPhase {
	finished := !slices.ContainsFunc(v.containers, func(s containerState) bool { return !s.finished })
	failed := slices.ContainsFunc(v.containers, func(s containerState) bool { return s.ended == nil || s.ended.code != 0 })
	switch {
	case finished && failed && (v.ending || len(v.containers) > 0):
		return corev1.PodFailed
	case finished && len(v.containers) > 0:
		return corev1.PodSucceeded
	case slices.ContainsFunc(v.containers, func(s containerState) bool { return !s.startedAt.IsZero() }):
		return corev1.PodRunning
	default:
		return corev1.PodPending
	}
}

func containerStatus(spec *corev1.Container, state containerState) corev1.ContainerStatus {
	out := corev1.ContainerStatus{
		Name: spec.Name, Image: spec.Image, Ready: state.ready, Started: new(state.started), RestartCount: state.restarts,
	}
	var ended *corev1.ContainerStateTerminated
	if state.ended != nil {
		ended = &corev1.ContainerStateTerminated{
			ExitCode: state.ended.code, Reason: state.ended.reason, Message: state.ended.detail,
			StartedAt: metav1.NewTime(state.ended.begin), FinishedAt: metav1.NewTime(state.ended.end),
		}
	}
	switch {
	case state.finished && ended != nil:
		out.State.Terminated = ended
	case state.waiting == "" && !state.startedAt.IsZero():
		out.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(state.startedAt)}
		out.LastTerminationState.Terminated = ended
	case state.waiting == "":
		out.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	default:
		out.State.Waiting = &corev1.ContainerStateWaiting{Reason: state.waiting, Message: state.message}
		out.LastTerminationState.Terminated = ended
	}
	return out
}

// condition is one that the kubelet writes.
type condition struct {
	kind corev1.PodConditionType
	is   bool
}

// in returns the conditions with this one among them. Others, as DisruptionTarget, stay.
func (c condition) in(conditions []corev1.PodCondition, generation int64, now time.Time) []corev1.PodCondition {
	next := corev1.PodCondition{
		Type: c.kind, Status: corev1.ConditionFalse, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	}
	if c.is {
		next.Status = corev1.ConditionTrue
	}
	at := slices.IndexFunc(conditions, func(old corev1.PodCondition) bool { return old.Type == c.kind })
	if at < 0 {
		return append(conditions, next)
	}
	if conditions[at].Status == next.Status {
		next.LastTransitionTime = conditions[at].LastTransitionTime
	}
	conditions[at] = next
	return conditions
}
