package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The drivers. A rule over all devices of the one has the pods go; the other's are
// there for the canary, and for pods that no rule is about.
const (
	taintedDriver = "gpu.example.com"
	otherDriver   = "nic.example.com"
)

// The rules.
const (
	ruleForAll    = "bench"
	ruleForCanary = "bench-canary"
)

// deviceClass need not exist where nobody schedules.
const deviceClass = "bench.example.com"

// requestName is the one request of each claim.
const requestName = "device"

// deviceWorkload are pods with a claim and a device each. This program allocates
// the devices, as a scheduler would: that of Kubernetes takes minutes for as many
// pods, and is not what is measured. Of those that stay the first on each node
// tolerates the taint, and the others use devices of another driver.
type deviceWorkload struct {
	*stage

	// tolerates is for how many seconds those that leave tolerate the taint; they
	// do not if it is nil.
	tolerates func(place int) int64
}

func (w deviceWorkload) create(ctx context.Context, n int) error {
	if err := w.publish(ctx, n); err != nil {
		return err
	}
	return w.each(ctx, n, func(ctx context.Context, g group, node string, i, place int) error {
		driver := taintedDriver
		var tolerations []resourcev1.DeviceToleration
		switch {
		case g == canary, g == stays && i > 0:
			driver = otherDriver
		case g == stays:
			tolerations = tolerating(nil)
		case w.tolerates != nil:
			tolerations = tolerating(new(w.tolerates(place)))
		}
		return w.createPodWithDevice(ctx, newPod(g, node, i), resourcev1.DeviceRequestAllocationResult{
			Request: requestName, Driver: driver, Pool: node, Device: deviceName(g, i), Tolerations: tolerations,
		})
	})
}

func tolerating(seconds *int64) []resourcev1.DeviceToleration {
	return []resourcev1.DeviceToleration{{
		Key: taintKey, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute,
		TolerationSeconds: seconds,
	}}
}

// deviceName is the name in its pool of the device of the i-th pod of a group.
func deviceName(g group, i int) string { return fmt.Sprintf("%s-%03d", g, i) }

// createPodWithDevice creates a pod and its claim, allocated and reserved for it.
func (w deviceWorkload) createPodWithDevice(ctx context.Context, pod *corev1.Pod, result resourcev1.DeviceRequestAllocationResult) error {
	claims := w.client.ResourceV1().ResourceClaims(namespace)
	claim, err := claims.Create(ctx, &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: requestName,
			Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: deviceClass, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
				Tolerations: result.Tolerations,
			},
		}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create claim: %w", err)
	}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: requestName, ResourceClaimName: &claim.Name}}
	pod, err = w.createPod(ctx, pod)
	if err != nil {
		return err
	}
	claim.Status = resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{result}},
		},
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}},
	}
	if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("allocate claim: %w", err)
	}
	return nil
}

// publish creates the slices of both drivers: a pool for each node.
func (w deviceWorkload) publish(ctx context.Context, n int) error {
	var slices []*resourcev1.ResourceSlice
	for _, node := range w.nodes {
		var tainted, other []string
		for i := range n / len(w.nodes) {
			tainted = append(tainted, deviceName(leaves, i))
		}
		tainted = append(tainted, deviceName(stays, 0))
		for i := 1; i < stayPerNode; i++ {
			other = append(other, deviceName(stays, i))
		}
		slices = append(slices, newPool(taintedDriver, node, tainted)...)
		slices = append(slices, newPool(otherDriver, node, other)...)
	}
	slices = append(slices, newPool(otherDriver, w.canary, []string{deviceName(canary, 0)})...)
	jobs, ctx := errgroup.WithContext(ctx)
	jobs.SetLimit(atOnce)
	for _, slice := range slices {
		jobs.Go(func() error {
			if _, err := w.client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("publish devices: %w", err)
			}
			return nil
		})
	}
	return jobs.Wait()
}

// newPool returns the slices of a pool.
func newPool(driver, node string, devices []string) []*resourcev1.ResourceSlice {
	kind, _, _ := strings.Cut(driver, ".")
	chunks := slices.Collect(slices.Chunk(devices, resourcev1.ResourceSliceMaxDevices))
	pool := make([]*resourcev1.ResourceSlice, 0, len(chunks))
	for i, names := range chunks {
		slice := &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", kind, node, i)},
			Spec: resourcev1.ResourceSliceSpec{
				Driver:   driver,
				NodeName: new(node),
				Pool:     resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: int64(len(chunks))},
			},
		}
		for _, name := range names {
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{
				Name: name,
				Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
					"model": {StringValue: new("a-device")}, "memory": {IntValue: new(int64(80))},
				},
			})
		}
		pool = append(pool, slice)
	}
	return pool
}

func (w deviceWorkload) taintCanary(ctx context.Context) error {
	return w.createRule(ctx, ruleForCanary, resourcev1.DeviceTaintSelector{Driver: new(otherDriver), Pool: &w.canary})
}

func (w deviceWorkload) taintAll(ctx context.Context) error {
	return w.createRule(ctx, ruleForAll, resourcev1.DeviceTaintSelector{Driver: new(taintedDriver)})
}

func (w deviceWorkload) createRule(ctx context.Context, name string, selector resourcev1.DeviceTaintSelector) error {
	_, err := w.client.ResourceV1().DeviceTaintRules().Create(ctx, &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &selector,
			Taint:          resourcev1.DeviceTaint{Key: taintKey, Effect: resourcev1.DeviceTaintEffectNoExecute},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create rule: %w", err)
	}
	return nil
}

func (w deviceWorkload) clear(ctx context.Context) error {
	resources := w.client.ResourceV1()
	for _, rule := range []string{ruleForAll, ruleForCanary} {
		if err := resources.DeviceTaintRules().Delete(ctx, rule, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete rule: %w", err)
		}
	}
	if err := w.deletePods(ctx); err != nil {
		return err
	}
	claims, err := resources.ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	jobs, ctx := errgroup.WithContext(ctx)
	jobs.SetLimit(atOnce)
	for i := range claims.Items {
		// Nothing holds a claim that no scheduler has allocated.
		jobs.Go(func() error {
			return resources.ResourceClaims(namespace).Delete(ctx, claims.Items[i].Name, metav1.DeleteOptions{})
		})
	}
	jobs.Go(func() error {
		return resources.ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	if err := jobs.Wait(); err != nil {
		return fmt.Errorf("delete claims and slices: %w", err)
	}
	return nil
}
