package main

import (
	"context"
	"encoding/json"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	namespace = metav1.NamespaceDefault
	taintKey  = "bench.example.com/maintenance"
	// maxPodsPerNode leaves room for those that stay, below the 500 pods that
	// the nodes of the control plane have.
	maxPodsPerNode = 490
	// stayPerNode is how many pods on each node tolerate the taint.
	stayPerNode = 2
	// atOnce is how many requests this program makes at a time.
	atOnce = 32
)

// newPod returns a pod bound to a node.
func newPod(g group, node string, i int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprintf("%s-%s-%03d", g, node, i),
			Labels: map[string]string{"app": "bench", "group": string(g)},
		},
		Spec: corev1.PodSpec{
			// Bound at creation: how fast a scheduler is does not matter here.
			NodeName: node,
			Containers: []corev1.Container{{
				Name:  "app",
				Image: "registry.example.com/team/app:v1.2.3",
				Env:   []corev1.EnvVar{{Name: "SETTING", Value: "value"}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
				}},
			}},
		},
	}
	if g == stays {
		pod.Spec.Tolerations = []corev1.Toleration{{
			Key: taintKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		}}
	}
	return pod
}

// create creates n pods that leave, and those that stay, evenly on all nodes.
func (s *stage) create(ctx context.Context, n int) error {
	jobs, ctx := errgroup.WithContext(ctx)
	jobs.SetLimit(atOnce)
	for i := range n / len(s.nodes) {
		for _, node := range s.nodes {
			jobs.Go(func() error { return s.createPod(ctx, newPod(leaves, node, i)) })
		}
	}
	for i := range stayPerNode {
		for _, node := range s.nodes {
			jobs.Go(func() error { return s.createPod(ctx, newPod(stays, node, i)) })
		}
	}
	return jobs.Wait()
}

func (s *stage) createPod(ctx context.Context, pod *corev1.Pod) error {
	if _, err := s.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod: %w", err)
	}
	return nil
}

// taint puts the taint on nodes, or takes it away, all at once.
func (s *stage) taint(ctx context.Context, on bool, nodes ...string) error {
	taints := []corev1.Taint{}
	if on {
		taints = append(taints, corev1.Taint{Key: taintKey, Effect: corev1.TaintEffectNoExecute})
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": taints}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	jobs, ctx := errgroup.WithContext(ctx)
	for _, node := range nodes {
		jobs.Go(func() error {
			if _, err := s.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("taint node: %w", err)
			}
			return nil
		})
	}
	return jobs.Wait()
}

// verify checks that those went who had to, and nobody else.
func (s *stage) verify(ctx context.Context) error {
	pods, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	stayed := 0
	for i := range pods.Items {
		pod := &pods.Items[i]
		going := pod.DeletionTimestamp != nil
		switch groupOf(pod.Name) {
		case leaves, canary:
			if !going {
				return fmt.Errorf("pod %s is still there", pod.Name)
			}
		case stays:
			if going {
				return fmt.Errorf("pod %s tolerates the taint and was told to go", pod.Name)
			}
			stayed++
		case unknown:
			return fmt.Errorf("pod %s is not of this program", pod.Name)
		}
	}
	if want := stayPerNode * len(s.nodes); stayed != want {
		return fmt.Errorf("%d pods that tolerate the taint are there, want %d", stayed, want)
	}
	return nil
}

// clear takes the taints away and deletes what pods there are.
func (s *stage) clear(ctx context.Context) error {
	if err := s.taint(ctx, false, append([]string{s.canary}, s.nodes...)...); err != nil {
		return err
	}
	err := s.client.CoreV1().Pods(namespace).DeleteCollection(ctx,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	return poll(ctx, "pods to be gone", func(ctx context.Context) (bool, error) {
		pods, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, fmt.Errorf("list pods: %w", err)
		}
		return len(pods.Items) == 0, nil
	})
}
