package evictor

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// retryBase is the first wait after a failed attempt. Each pod has its own backoff: with a
	// shared bucket, the last of many pods would wait long after the API server has recovered.
	retryBase = 10 * time.Millisecond
	// conflictMax is the maximum wait after a conflict. The next attempt decides about the new
	// version of the pod, and pods that change often must not wait longer and longer.
	conflictMax = 100 * time.Millisecond
	// longestSleep is the maximum time before the deadline of a pod is computed again. Deadlines
	// are times of the API server, but sleeps are measured by this machine. If the clocks diverge,
	// because one was set or the machine was suspended, a pod leaves late by at most this.
	longestSleep = time.Minute
)

// The name labels of the workqueue metrics. The queue of pods has the name of Kubernetes'
// controller for devices (DE-59), because that for nodes names no queue.
const (
	podQueue   = "device-taint-eviction-controller"
	stampQueue = "tollgate-stamp"
)

// newQueues makes the queues, which only wake the workers: each pod is decided about again when it
// is woken. nodes has the nodes with taints without a time.
func (e *Evictor) newQueues() {
	base := controller.Base{Local: e.local, Leads: e.options.Leads}
	e.pods = controller.New(base, controller.Options[tracker.Key]{
		Name: podQueue, Workers: e.options.Workers, RetryBase: retryBase, Started: e.queuePods, Reconcile: e.step,
	})
	base.Timeout = e.options.AttemptTimeout
	e.nodes = controller.New(base, controller.Options[string]{
		Name: stampQueue, RetryBase: retryBase, Started: e.queueObjects, Reconcile: e.stampStep,
	})
}

// step processes one pod. It returns after how long to process the pod again, zero for never, or an
// error that does the same.
func (e *Evictor) step(ctx context.Context, key tracker.Key) (time.Duration, error) {
	defer e.state.processed(key)
	woken := e.woken.Load()
	wait, err := e.process(ctx, key)
	switch {
	case err != nil:
		return 0, backoff(e.pods, key, err)
	case wait > 0 && woken != e.woken.Load():
		// Held pods may have been woken before this one was recorded as held.
		return time.Millisecond, nil
	}
	return min(wait, longestSleep), nil
}

// backoff returns an error with the wait of a key after a failed attempt: exponential, at least the
// Retry-After of the API server, and at most controller.RetryMax.
func backoff[K comparable](queue *controller.Controller[K], key K, cause error) error {
	wait := min(queue.Backoff(key, cause), controller.RetryMax)
	if _, asks := apierrors.SuggestsClientDelay(cause); !asks && act.Classify(cause) == act.Conflict {
		wait = min(wait, conflictMax)
	}
	return controller.DelayError(wait)
}

// queuePods queues all pods that a taint concerns.
func (e *Evictor) queuePods() {
	exposed := e.tracker.Exposed()
	e.state.begin(sets.New(exposed...))
	e.PodsChanged(exposed)
}

// queueObjects processes all tracked nodes and rules, and those with state from an earlier lease,
// which is removed if they do not exist any more.
func (e *Evictor) queueObjects() {
	odd := e.odd.objects()
	for _, name := range append(e.tracker.Tainted(), names(odd, tracker.SourceNode)...) {
		e.NodeChanged(name)
	}
	for _, name := range append(names(append(e.state.counted(), odd...), tracker.SourceRule), e.tracker.Rules()...) {
		e.RuleChanged(name)
	}
}

// PodsChanged queues pods whose deadline may have changed. It does not block, and does nothing
// while the evictor does not run: Start queues all pods.
func (e *Evictor) PodsChanged(keys []tracker.Key) { e.pods.Add(keys...) }

// podsCalled queues pods that the rate limiter calls.
func (e *Evictor) podsCalled(keys []tracker.Key) {
	for _, key := range keys {
		e.state.with(key, func(of *pendingEviction) { of.called = true })
	}
	e.PodsChanged(keys)
}

// NodeChanged processes a node whose taints may have changed: it reports odd times, and queues the
// node if a taint has no time. It does not block, and does nothing while the evictor does not run.
func (e *Evictor) NodeChanged(name string) {
	if !e.running.Load() {
		return
	}
	uid, taints := e.tracker.Taints(name)
	e.checkTimes(tracker.Source{Kind: tracker.SourceNode, Name: name, UID: uid}, taints)
	if lackTime(taints) && e.options.Mode != ModeObserve {
		e.nodes.Add(name)
	}
}

// RuleChanged processes a DeviceTaintRule whose taint may have changed: it reports odd times, and
// removes the count of a deleted rule. It does not block, and does nothing while the evictor does
// not run.
func (e *Evictor) RuleChanged(name string) {
	if !e.running.Load() {
		return
	}
	e.state.forgetGone(name)
	source, taints := tracker.Source{Kind: tracker.SourceRule, Name: name}, []tracker.Taint(nil)
	if taint, ok := e.tracker.RuleTaint(name); ok {
		source = taint.Source
		if taint.Effect == corev1.TaintEffectNoExecute {
			taints = []tracker.Taint{taint}
		}
	}
	e.checkTimes(source, taints)
}
