package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	namespace = metav1.NamespaceDefault
	taintKey  = "bench.example.com/maintenance"
	// maxPodsPerNode leaves room for those that stay, below the 500 pods that
	// the nodes of the control plane have.
	maxPodsPerNode = 490
	// stayPerNode is how many pods on each node may stay.
	stayPerNode = 2
	// atOnce is how many requests this program makes at a time.
	atOnce = 32
)

// workload is what is evicted, and what makes it go.
type workload interface {
	// create creates n pods that leave, evenly on all nodes, stayPerNode on each
	// that stay, and one, the canary, on a node of its own.
	create(ctx context.Context, n int) error
	// taintCanary and taintAll have the canary go, and all others that leave.
	taintCanary(ctx context.Context) error
	taintAll(ctx context.Context) error
	// clear takes away what create and the others made.
	clear(ctx context.Context) error
}

func (s *stage) workload(scenario scenario) workload {
	if !scenario.devices {
		return nodeWorkload{s}
	}
	w := deviceWorkload{stage: s}
	if scenario.timed {
		w.tolerates = tolerates
	}
	return w
}

// newPod returns a pod bound to a node.
func newPod(g group, node string, i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      fmt.Sprintf("%s-%s-%03d", g, node, i),
			Namespace: namespace,
			Labels:    map[string]string{"app": "bench", "group": string(g)},
		},
		Spec: corev1.PodSpec{
			// Bound at creation: how fast a scheduler is does not matter here.
			NodeName:   node,
			Containers: []corev1.Container{newContainer("app"), newContainer("sidecar")},
		},
	}
}

// newContainer returns a container with 20 variables, so that a pod of two is as large as real ones.
func newContainer(name string) corev1.Container {
	c := corev1.Container{
		Name: name, Image: "registry.example.com/team/" + name + ":v1.2.3",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("8Mi"),
		}},
	}
	for i := range 20 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%02d", i), Value: "https://service.example.com/a/value/of/some/length"})
	}
	return c
}

// each calls do for every pod that a workload of n pods has: i counts the pods of
// the node, and place all pods that leave.
func (s *stage) each(ctx context.Context, n int, do func(ctx context.Context, g group, node string, i, place int) error) error {
	jobs, ctx := errgroup.WithContext(ctx)
	jobs.SetLimit(atOnce)
	jobs.Go(func() error { return do(ctx, canary, s.canary, 0, 0) })
	for i := range n / len(s.nodes) {
		for j, node := range s.nodes {
			jobs.Go(func() error { return do(ctx, leaves, node, i, i*len(s.nodes)+j) })
		}
	}
	for i := range stayPerNode {
		for _, node := range s.nodes {
			jobs.Go(func() error { return do(ctx, stays, node, i, 0) })
		}
	}
	return jobs.Wait()
}

func (s *stage) createPod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	created, err := s.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create pod: %w", err)
	}
	return created, nil
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
				return fmt.Errorf("pod %s may stay and was told to go", pod.Name)
			}
			stayed++
		case unknown:
			return fmt.Errorf("pod %s is not of this program", pod.Name)
		}
	}
	if want := stayPerNode * len(s.nodes); stayed != want {
		return fmt.Errorf("%d pods that may stay are there, want %d", stayed, want)
	}
	return nil
}

// deletePods deletes what pods there are.
func (s *stage) deletePods(ctx context.Context) error {
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
