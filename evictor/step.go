package evictor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// heldUpAfter is how many attempts have to fail in a row before an event tells of
// it: one that fails now and then is nobody's concern.
const heldUpAfter = 5

// leasePause is how long an eviction that is due waits while the lease has not
// been renewed in time. Either it is renewed soon, or the process ends.
const leasePause = time.Second

// target is a pod that has to leave now, and why.
type target struct {
	pod      tracker.Pod
	decision Decision
	// now is when that was decided.
	now time.Time
	// cause is the reason that was confirmed, which the marks on the pod go by.
	cause Reason
}

// step handles one pod. An error means that it is tried again; a positive
// duration that it is not time yet; zero that it is done or need not be done.
func (e *Evictor) step(ctx context.Context, key tracker.Key) (time.Duration, error) {
	_, wait, due := e.due(ctx, key)
	if !due {
		return wait, nil
	}
	if !e.options.Leads() {
		return leasePause, nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.options.AttemptTimeout)
	defer cancel()
	goal, wait, err := e.confirmed(ctx, key)
	if err != nil {
		e.failed(ctx, key, attempt{}, err)
		return 0, err
	}
	if goal == nil {
		return wait, nil
	}
	return 0, e.act(ctx, *goal)
}

// confirmed makes sure that a pod has to leave: the object that carries the taint
// is looked at itself, and with what is found it is decided anew. If that taint is
// gone, it is the turn of the next. If an object cannot be read, another that is as
// good a reason is tried, unless that would only take more time. Without a target,
// the pod need not leave yet, and has to wait.
func (e *Evictor) confirmed(ctx context.Context, key tracker.Key) (*target, time.Duration, error) {
	looked := map[objectName]error{}
	for {
		goal, wait, due := e.due(ctx, key)
		if !due {
			return nil, wait, nil
		}
		cause, err := pick(goal, looked)
		if err != nil {
			return nil, 0, err
		}
		object := nameOf(cause.Taint.Source)
		if _, done := looked[object]; done {
			goal.cause = cause
			return &goal, 0, nil
		}
		changed, err := e.confirm.confirm(ctx, object)
		e.PodsChanged(changed)
		switch classify(err) {
		case Timeout, Throttled, Conflict:
			return nil, 0, err
		case NoFailure, NotFound, Denied, Invalid, Unavailable:
			looked[object] = err
		}
	}
}

// pick returns the first reason to leave now whose object could be read, or was not
// tried yet. If there is none, it returns what came of the first.
func pick(goal target, looked map[objectName]error) (Reason, error) {
	because := goal.decision.Because
	for i := range because {
		if because[i].At.After(goal.now) {
			break
		}
		if looked[nameOf(because[i].Taint.Source)] == nil {
			return because[i], nil
		}
	}
	return Reason{}, looked[nameOf(because[0].Taint.Source)]
}

// due decides about a pod and enters in the book what follows. It returns what to
// do when it has to be done now, else how long to wait, zero for nothing to do.
func (e *Evictor) due(ctx context.Context, key tracker.Key) (target, time.Duration, bool) {
	situation, ok := e.tracker.Lookup(key)
	if !ok {
		e.overtaken(ctx, key, Gone, nil)
		return target{}, 0, false
	}
	now := e.clock.Now()
	decision := e.options.Rules.Decide(now, situation)
	if decision.Verdict == Keep {
		e.keep(ctx, situation.Pod)
		return target{}, 0, false
	}
	e.book.plan(key, decision)
	if decision.Wait > 0 {
		return target{}, decision.Wait, false
	}
	return target{pod: situation.Pod, decision: decision, now: now}, 0, true
}

// keep withdraws the eviction of a pod that exists, if there was one.
func (e *Evictor) keep(ctx context.Context, pod tracker.Pod) {
	if pod.Terminating {
		e.overtaken(ctx, pod.Key, Terminating, nil)
		return
	}
	ended, _, ok := e.book.close(pod.Key, Unfinished, nil)
	if !ok {
		return
	}
	e.announce.cancelled(pod.Key, ended.source)
	logr.FromContextOrDiscard(ctx).V(1).Info("cancelled eviction", "pod", pod.String())
}

// overtaken ends the eviction of a pod that is gone or on its way out, which the
// tracker learns by learn if it does not know yet.
func (e *Evictor) overtaken(ctx context.Context, key tracker.Key, outcome Outcome, learn func(tracker.Key)) {
	ended, outcome, ok := e.book.close(key, outcome, learn)
	if !ok {
		return
	}
	e.metrics.ended(ended.source, outcome, e.clock.Now().Sub(ended.at))
	logr.FromContextOrDiscard(ctx).V(1).Info("eviction overtaken", "pod", key.String(), "outcome", outcome.String())
}

// act makes one attempt to evict a pod.
func (e *Evictor) act(ctx context.Context, goal target) error {
	key := goal.pod.Key
	done, err := e.effector.evict(ctx, goal.pod, goal.cause.Taint.Source.Kind, e.book.canMark(key))
	if done.answer != nil {
		e.PodsChanged(e.tracker.RefreshPod(tracker.PodOf(done.answer)))
	}
	if err != nil {
		e.failed(ctx, key, done, err)
		if classify(err) == Conflict {
			return errors.Join(err, e.reread(ctx, key))
		}
		return err
	}
	switch done.outcome {
	case Evicted:
		e.evicted(ctx, goal)
	case Terminating:
		e.overtaken(ctx, key, Terminating, e.tracker.SetTerminating)
	case Gone:
		e.overtaken(ctx, key, Gone, func(key tracker.Key) { e.tracker.DeletePod(key) })
	case Unfinished:
	}
	e.PodsChanged(e.book.recover(e.local.Now()))
	return nil
}

// evicted ends an eviction that was carried out. Until the tracker knows, from here or
// from the watch, the pod is as it was, and in the hands of this worker: nobody else
// acts on it.
func (e *Evictor) evicted(ctx context.Context, goal target) {
	key := goal.pod.Key
	source := goal.cause.Taint.Source
	late := e.clock.Now().Sub(goal.cause.At)
	if _, _, ok := e.book.close(key, Evicted, e.tracker.SetTerminating); !ok {
		return
	}
	e.metrics.ended(source.Kind, Evicted, late)
	e.announce.evicted(key, goal.cause.Taint, e.tracker.UIDOf(source))
	logr.FromContextOrDiscard(ctx).Info("evicted pod", "pod", key.String(), "uid", key.UID, "node", goal.pod.NodeName,
		"because", reasons(goal.decision.Because), "late", late.String())
}

// failed enters a failed attempt, and tells of it when it lasts.
func (e *Evictor) failed(ctx context.Context, key tracker.Key, done attempt, err error) {
	failure := classify(err)
	e.metrics.retries.WithLabelValues(string(failure)).Inc()
	now := e.book.fail(key, failure, done)
	logger := logr.FromContextOrDiscard(ctx)
	if now.failures < heldUpAfter || !e.book.announce(key, failure) {
		logger.V(1).Info("cannot evict pod yet", "pod", key.String(), "reason", err.Error())
		return
	}
	e.announce.heldUp(key, now.source, err)
	logger.Info("eviction is held up", "pod", key.String(), "failures", now.failures, "reason", err.Error())
}

// reread brings what is known of a pod up to date after a request showed that it
// is not. The next attempt decides on what it finds, so that a pod whose status
// changes all the time is not waited for.
func (e *Evictor) reread(ctx context.Context, key tracker.Key) error {
	pod, err := e.options.Client.CoreV1().Pods(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case classify(err) == NotFound, err == nil && pod.UID != key.UID:
		e.PodsChanged(e.tracker.DeletePod(key))
	case err != nil:
		return fmt.Errorf("read pod: %w", err)
	default:
		e.PodsChanged(e.tracker.RefreshPod(tracker.PodOf(pod)))
	}
	return nil
}

// reasons returns what is logged of because.
func reasons(because []Reason) []string {
	texts := make([]string, 0, len(because))
	for _, reason := range because {
		text := reason.Taint.String() + " since " + reason.Taint.TimeAdded.UTC().Format(time.RFC3339)
		if source := reason.Taint.Source; source.Kind.OnDevice() {
			text += " by " + string(source.Kind) + " " + source.Name + " on " + reason.Device.String() + " in claim " + reason.Claim.Name
		}
		texts = append(texts, text)
	}
	return texts
}
