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
}

// step handles one pod. An error means that it is tried again; a positive
// duration that it is not time yet; zero that it is done or need not be done.
func (e *Evictor) step(ctx context.Context, key tracker.Key) (time.Duration, error) {
	goal, wait, due := e.due(ctx, key)
	if !due {
		return wait, nil
	}
	if !e.options.Leads() {
		return leasePause, nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.options.AttemptTimeout)
	defer cancel()
	changed, err := e.confirm.confirm(ctx, goal.pod.NodeName)
	e.PodsChanged(changed)
	if err != nil {
		e.failed(ctx, key, attempt{}, err)
		return 0, err
	}
	if goal, wait, due = e.due(ctx, key); !due {
		return wait, nil
	}
	return 0, e.act(ctx, goal)
}

// due decides about a pod and enters in the book what follows. It returns what to
// do when it has to be done now, else how long to wait, zero for nothing to do.
func (e *Evictor) due(ctx context.Context, key tracker.Key) (target, time.Duration, bool) {
	pod, taints, ok := e.tracker.Lookup(key)
	if !ok {
		e.overtaken(ctx, key, Gone)
		return target{}, 0, false
	}
	decision := e.options.Rules.Decide(e.clock.Now(), pod, taints)
	if decision.Verdict == Keep {
		e.keep(ctx, pod)
		return target{}, 0, false
	}
	e.book.plan(key, decision.Because[0].Taint.Source.Kind, decision.At)
	if decision.Wait > 0 {
		return target{}, decision.Wait, false
	}
	return target{pod: pod, decision: decision}, 0, true
}

// keep withdraws the eviction of a pod that exists, if there was one.
func (e *Evictor) keep(ctx context.Context, pod tracker.Pod) {
	if pod.Terminating {
		e.overtaken(ctx, pod.Key, Terminating)
		return
	}
	if _, ok := e.book.close(pod.Key); !ok {
		return
	}
	e.announce.cancelled(pod.Key)
	logr.FromContextOrDiscard(ctx).V(1).Info("cancelled eviction", "pod", pod.String())
}

// overtaken ends the eviction of a pod that is gone or on its way out. It is ours
// if we asked for its deletion and only the answer was lost (I04).
func (e *Evictor) overtaken(ctx context.Context, key tracker.Key, outcome Outcome) {
	ended, ok := e.book.close(key)
	if !ok {
		return
	}
	if ended.sent {
		outcome = Evicted
	}
	e.metrics.ended(ended.source, outcome, e.clock.Now().Sub(ended.at))
	logr.FromContextOrDiscard(ctx).V(1).Info("eviction overtaken", "pod", key.String(), "outcome", outcome.String())
}

// act makes one attempt to evict a pod.
func (e *Evictor) act(ctx context.Context, goal target) error {
	key := goal.pod.Key
	done, err := e.effector.evict(ctx, goal.pod, e.book.canMark(key))
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
		e.tracker.SetTerminating(key)
		e.overtaken(ctx, key, Terminating)
	case Gone:
		e.tracker.DeletePod(key)
		e.overtaken(ctx, key, Gone)
	case Unfinished:
	}
	e.PodsChanged(e.book.recover(e.local.Now()))
	return nil
}

// evicted ends an eviction that was carried out.
func (e *Evictor) evicted(ctx context.Context, goal target) {
	key := goal.pod.Key
	e.tracker.SetTerminating(key)
	first := goal.decision.Because[0].Taint
	late := e.clock.Now().Sub(goal.decision.At)
	if _, ok := e.book.close(key); !ok {
		return
	}
	e.metrics.ended(first.Source.Kind, Evicted, late)
	uid, _ := e.tracker.Taints(goal.pod.NodeName)
	e.announce.evicted(goal.pod, uid, goal.decision.Because)
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
	e.announce.heldUp(key, err)
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
		texts = append(texts, reason.Taint.String()+" since "+reason.Taint.TimeAdded.UTC().Format(time.RFC3339))
	}
	return texts
}
