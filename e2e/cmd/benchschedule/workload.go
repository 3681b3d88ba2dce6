package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

const (
	namespace = metav1.NamespaceDefault
	driver    = "gpu.example.com"
	// atOnce is how many requests this program makes at a time.
	atOnce = 32
	// patience is how long a step may take.
	patience = 5 * time.Minute
)

// publish creates the class, and a pool for each node.
func (s *stage) publish(ctx context.Context) error {
	if _, err := s.client.ResourceV1().DeviceClasses().Create(ctx, dra.Class(driver), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create class: %w", err)
	}
	for i := range s.options.nodes {
		node := controlplane.NodeName(i + 1)
		devices := make([]resourcev1.Device, s.options.pods/s.options.nodes)
		for j := range devices {
			devices[j] = dra.Device("gpu-" + strconv.Itoa(j))
			devices[j].Attributes["model"] = resourcev1.DeviceAttribute{StringValue: new("A")}
		}
		slice := dra.Slice(driver, node, devices...)
		slice.Spec.AllNodes, slice.Spec.NodeName = nil, &node
		if _, err := s.client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("publish devices: %w", err)
		}
	}
	return nil
}

// createPods creates the pods, and a claim for each.
func (s *stage) createPods(ctx context.Context) error {
	jobs, ctx := errgroup.WithContext(ctx)
	jobs.SetLimit(atOnce)
	for i := range s.options.pods {
		jobs.Go(func() error {
			name := "pod-" + strconv.Itoa(i)
			claim := dra.Claim(name, driver, "")
			claim.Spec.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{{
				CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf(`device.attributes[%q].model == "A"`, driver)},
			}}
			if _, err := s.client.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create claim: %w", err)
			}
			if _, err := s.client.CoreV1().Pods(namespace).Create(ctx, dra.Pod(name, name), metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create pod: %w", err)
			}
			return nil
		})
	}
	return jobs.Wait()
}

// deletePods deletes pods and claims, and returns when they are gone.
func (s *stage) deletePods(ctx context.Context) error {
	pods, claims := s.client.CoreV1().Pods(namespace), s.client.ResourceV1().ResourceClaims(namespace)
	err := errors.Join(
		pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}),
		claims.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
	)
	if err != nil {
		return fmt.Errorf("delete pods and claims: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		left, err := claims.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil || len(left.Items) > 0 {
			return false, err
		}
		running, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil && len(running.Items) == 0, err
	})
	if err != nil {
		return fmt.Errorf("wait for pods and claims to be gone: %w", err)
	}
	return nil
}

// bindings counts the pods that get a node. An informer, because a watch would end while
// nobody reads it.
type bindings struct {
	want   int
	cancel context.CancelFunc
	done   chan struct{} // closed when all have a node

	lock        sync.Mutex // guards what follows
	bound       map[string]bool
	first, last time.Time
}

// watchBindings begins to count; who calls it must call stop.
func (s *stage) watchBindings(ctx context.Context) (*bindings, error) {
	ctx, cancel := context.WithCancel(ctx)
	b := &bindings{want: s.options.pods, cancel: cancel, done: make(chan struct{}), bound: map[string]bool{}}
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithNamespace(namespace))
	pods := factory.Core().V1().Pods().Informer()
	registered, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    b.see,
		UpdateFunc: func(_, pod any) { b.see(pod) },
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
		cancel()
		return nil, fmt.Errorf("watch pods: %w", context.Cause(ctx))
	}
	return b, nil
}

func (b *bindings) stop() { b.cancel() }

func (b *bindings) see(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return
	}
	b.lock.Lock()
	defer b.lock.Unlock()
	if b.bound[pod.Name] {
		return
	}
	b.last = time.Now()
	if b.first.IsZero() {
		b.first = b.last
	}
	if b.bound[pod.Name] = true; len(b.bound) == b.want {
		close(b.done)
	}
}

// wait returns how long it was from the first binding to the last.
func (b *bindings) wait(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var err error
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-b.done:
	}
	b.lock.Lock()
	defer b.lock.Unlock()
	if err != nil {
		return 0, fmt.Errorf("%d of %d pods have a node: %w", len(b.bound), b.want, err)
	}
	return b.last.Sub(b.first), nil
}
