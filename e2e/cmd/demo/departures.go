package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// departures notes when pods are told to go, as an onlooker who has nothing to
// do with Tollgate.
type departures struct {
	mutex sync.Mutex
	left  map[string]time.Time
	news  chan struct{}
}

func newDepartures() *departures {
	return &departures{left: map[string]time.Time{}, news: make(chan struct{})}
}

// watch notes the departures in a namespace until ctx is done.
func (d *departures) watch(ctx context.Context, client kubernetes.Interface, namespace string) error {
	events, err := client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	go func() {
		defer events.Stop()
		for event := range events.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if ok && (pod.DeletionTimestamp != nil || event.Type == watch.Deleted) {
				d.note(pod.Name, time.Now())
			}
		}
	}()
	return nil
}

func (d *departures) note(name string, at time.Time) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if _, known := d.left[name]; !known {
		d.left[name] = at
		close(d.news)
		d.news = make(chan struct{})
	}
}

func (d *departures) get(name string) (time.Time, bool, <-chan struct{}) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	at, ok := d.left[name]
	return at, ok, d.news
}

// wait returns when a pod left, or an error if it does not in time.
func (d *departures) wait(ctx context.Context, name string, timeout time.Duration) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		at, ok, news := d.get(name)
		if ok {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("pod %s did not leave within %s", name, timeout)
		case <-news:
		}
	}
}
