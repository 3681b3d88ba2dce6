package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// web is the namespace of the Deployment that is spread over the nodes.
const web = "web"

// spread has a pod wait because its topology spread constraint counts a tainted node, asks
// why, and lets a PlacementPolicy help.
func (s *story) spread(ctx context.Context) error {
	if _, err := s.kubectl(ctx, "create", "namespace", web); err != nil {
		return err
	}
	out, err := s.kubectl(ctx, "apply", "-f", s.manifest("web.yaml"))
	if err != nil {
		return err
	}
	if !strings.Contains(out, "set nodeTaintsPolicy: Honor") {
		return errors.New("the Deployment was accepted without a warning")
	}
	pod, err := s.unschedulable(ctx)
	if err != nil {
		return err
	}
	out, err = s.tollgateCommand(ctx, "explain", "pod", pod, "-n", web)
	if err != nil {
		return err
	}
	for _, part := range []string{"maxSkew", node, "SKEW IF HONOR", "SKEW IF IGNORE"} {
		if !strings.Contains(out, part) {
			return fmt.Errorf("the explanation does not name %s", part)
		}
	}
	for _, args := range [][]string{
		{"apply", "-f", s.manifest("honor-taints.yaml")},
		{"wait", "--for=condition=Ready", "--timeout=30s", "placementpolicy/honor-taints"},
		{"delete", "pod", pod, "-n", web},
		{"rollout", "status", "deployment/web", "-n", web, "--timeout=60s"},
	} {
		if _, err := s.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// unschedulable waits until four pods of the Deployment run and returns the name of the
// fifth, which the scheduler could not place.
func (s *story) unschedulable(ctx context.Context) (name string, err error) {
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 6*patience, true, func(ctx context.Context) (bool, error) {
		pods, err := s.client.CoreV1().Pods(web).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, fmt.Errorf("list pods: %w", err)
		}
		placed := 0
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Spec.NodeName != "" {
				placed++
			} else if refusedByScheduler(pod) {
				name = pod.Name
			}
		}
		return placed == 4 && name != "", nil
	})
	if err != nil {
		return "", fmt.Errorf("wait for four pods that are placed and one that is not: %w", err)
	}
	return name, nil
}

func refusedByScheduler(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		condition := &pod.Status.Conditions[i]
		if condition.Type == corev1.PodScheduled {
			return condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}
