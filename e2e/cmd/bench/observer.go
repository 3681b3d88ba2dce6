package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// group says what becomes of a pod; it begins the pod's name.
type group string

const (
	leaves  group = "leaves"
	stays   group = "stays"
	canary  group = "canary"
	unknown group = ""
)

func groupOf(name string) group {
	before, _, _ := strings.Cut(name, "-")
	switch g := group(before); g {
	case leaves, stays, canary:
		return g
	case unknown:
	}
	return unknown
}

// sightings are what was seen of one group.
type sightings struct {
	running, marked, gone map[string]time.Time
}

// observer watches pods with a connection of its own, so that both evictors are
// timed by the same onlooker and not by what they say.
type observer struct {
	stop context.CancelFunc

	mu   sync.Mutex
	seen map[group]*sightings
	err  error
	news chan struct{}
}

// observe watches the pods of the namespace from now on.
func observe(ctx context.Context, client kubernetes.Interface) (*observer, error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	o := newObserver(stop)
	go o.watch(ctx, client, list.ResourceVersion)
	return o, nil
}

func newObserver(stop context.CancelFunc) *observer {
	o := &observer{stop: stop, seen: map[group]*sightings{}, news: make(chan struct{})}
	for _, g := range []group{leaves, stays, canary} {
		o.seen[g] = &sightings{running: map[string]time.Time{}, marked: map[string]time.Time{}, gone: map[string]time.Time{}}
	}
	return o
}

// emptyWatches is how many watches in a row may end without an event.
const emptyWatches = 10

// watch goes on from where a watch ended. The API server ends those that do not
// keep up, before their first event even, as happens where all share two cores.
func (o *observer) watch(ctx context.Context, client kubernetes.Interface, version string) {
	for empty := 0; empty < emptyWatches; {
		events, err := client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			o.fail(fmt.Errorf("watch pods: %w", err))
			return
		}
		empty++
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				o.fail(apierrors.FromObject(event.Object))
				return
			}
			if pod, ok := event.Object.(*corev1.Pod); ok {
				version, empty = pod.ResourceVersion, 0
				o.see(pod, event.Type == watch.Deleted, time.Now())
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
	o.fail(errors.New("watches of pods end without an event"))
}

func (o *observer) see(pod *corev1.Pod, gone bool, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s, ok := o.seen[groupOf(pod.Name)]
	if !ok {
		return
	}
	note := func(when map[string]time.Time) {
		if _, known := when[pod.Name]; !known {
			when[pod.Name] = at
			o.tell()
		}
	}
	if pod.Status.Phase == corev1.PodRunning {
		note(s.running)
	}
	if pod.DeletionTimestamp != nil || gone {
		note(s.marked)
	}
	if gone {
		note(s.gone)
	}
}

func (o *observer) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
		o.tell()
	}
}

// tell wakes who waits. The lock is held.
func (o *observer) tell() {
	close(o.news)
	o.news = make(chan struct{})
}

// waitRunning returns when n pods of a group have been seen to run, and when.
func (o *observer) waitRunning(ctx context.Context, g group, n int) ([]time.Time, error) {
	return o.wait(ctx, o.seen[g].running, n, fmt.Sprintf("pods of %q to run", g))
}

// waitMarked returns when n pods of a group have been seen to be marked for
// deletion, and when.
func (o *observer) waitMarked(ctx context.Context, g group, n int) ([]time.Time, error) {
	return o.wait(ctx, o.seen[g].marked, n, fmt.Sprintf("pods of %q to be marked for deletion", g))
}

// marked returns when each pod of a group was first seen to be marked.
func (o *observer) marked(g group) map[string]time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.seen[g].marked)
}

// waitGone returns when n pods of a group have been seen to be gone, and when.
func (o *observer) waitGone(ctx context.Context, g group, n int) ([]time.Time, error) {
	return o.wait(ctx, o.seen[g].gone, n, fmt.Sprintf("pods of %q to be gone", g))
}

// wait returns when there are n sightings, the earliest first.
func (o *observer) wait(ctx context.Context, when map[string]time.Time, n int, what string) ([]time.Time, error) {
	for {
		o.mu.Lock()
		got, news, err := len(when), o.news, o.err
		var times []time.Time
		if got >= n {
			times = slices.SortedFunc(maps.Values(when), time.Time.Compare)
		}
		o.mu.Unlock()
		switch {
		case err != nil:
			return nil, fmt.Errorf("wait for %d %s: %w", n, what, err)
		case got >= n:
			return times, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %d %s: %d so far: %w", n, what, got, ctx.Err())
		case <-news:
		}
	}
}
