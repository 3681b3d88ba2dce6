package main

import (
	"context"
	"encoding/json"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nodeWorkload are pods on nodes that are tainted, all at once. Those that stay
// tolerate the taint.
type nodeWorkload struct{ *stage }

func (w nodeWorkload) create(ctx context.Context, n int) error {
	return w.each(ctx, n, func(ctx context.Context, g group, node string, i, _ int) error {
		pod := newPod(g, node, i)
		if g == stays {
			pod.Spec.Tolerations = []corev1.Toleration{{
				Key: taintKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			}}
		}
		_, err := w.createPod(ctx, pod)
		return err
	})
}

func (w nodeWorkload) taintCanary(ctx context.Context) error {
	return w.taint(ctx, true, w.canary)
}

func (w nodeWorkload) taintAll(ctx context.Context) error {
	return w.taint(ctx, true, w.nodes...)
}

func (w nodeWorkload) clear(ctx context.Context) error {
	if err := w.taint(ctx, false, append([]string{w.canary}, w.nodes...)...); err != nil {
		return err
	}
	return w.deletePods(ctx)
}

// taint puts the taint on nodes, or takes it away, all at once.
func (w nodeWorkload) taint(ctx context.Context, on bool, nodes ...string) error {
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
			if _, err := w.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("taint node: %w", err)
			}
			return nil
		})
	}
	return jobs.Wait()
}
