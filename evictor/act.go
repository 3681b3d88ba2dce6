package evictor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/tracker"
)

// heldUpAfter is the number of failed attempts in a row after which an event reports them.
const heldUpAfter = 5

// blockedBase is the first wait of a pod whose budget refuses the eviction. It doubles up to
// checks.Recheck. The pod is woken earlier when the watch reports that the budget allows more.
const blockedBase = time.Second

// act makes the requests of one attempt to evict a pod, and processes the answers. If a budget
// blocks the pod, it adds the reasons that the budget holds to held.
func (e *Evictor) act(ctx context.Context, goal *target, pass checks.Pass, held heldReasons) (blocked bool, err error) {
	key := goal.pod.Key
	how, done, err := e.request(ctx, goal, pass)
	if done.Answer != nil {
		e.PodsChanged(e.tracker.RefreshPod(tracker.PodOf(done.Answer)))
	}
	switch failure := act.Classify(err); {
	case failure.Blocked():
		e.blocked(ctx, goal, done, err, held)
		return true, nil
	case failure != act.NoFailure:
		e.failed(ctx, key, done, err)
		if failure == act.Conflict && !done.Changed {
			err = errors.Join(err, e.reread(ctx, key, false))
		}
		return false, err
	}
	switch done.Outcome {
	case act.Evicted:
		e.evicted(ctx, goal, how)
	case act.Terminating:
		e.overtaken(ctx, key, act.Terminating, e.tracker.SetTerminating)
	case act.Gone:
		if err := e.reread(ctx, key, true); err != nil {
			e.failed(ctx, key, done, err)
			return false, err
		}
	case act.Unfinished:
	}
	e.PodsChanged(e.state.recover(e.local.Now()))
	return false, nil
}

// request makes the requests, and reports to the checks how they ended. After a panic during the
// requests it reports that the pod has left, because it may have.
func (e *Evictor) request(ctx context.Context, goal *target, pass checks.Pass) (how act.Method, done act.Attempt, err error) {
	end := checks.Stayed
	defer func() { pass.End(e.now(), end) }()
	what := e.order(goal)
	e.state.try(goal.pod.Key, what.Method)
	end = checks.Left
	done, err = e.effector.Evict(ctx, what)
	if !done.MayHaveWorked(err) {
		end = checks.Stayed
	}
	return what.Method, done, err
}

// order returns how a pod is to be evicted.
func (e *Evictor) order(goal *target) act.Order {
	what := act.Order{
		Pod: goal.pod, Cause: goal.cause.Taint.Source.Kind, Method: goal.method(goal.cause), Mark: goal.mark(),
		// The lease may have been lost since the attempt began, or the machine suspended (INV-3, INV-6).
		Holds: func() error {
			switch {
			case !e.options.Leads():
				return errNotLeading
			case !e.confirm.Recent(goal.cause.Taint.Source.Named()):
				return errOutdated
			}
			return nil
		},
	}
	if what.Method == act.Evict || what.Mark == v1alpha1.EvictionMarkByEvictionAPI {
		what.Guarded = slices.ContainsFunc(e.tracker.Budgets(goal.pod.Namespace), func(budget tracker.Budget) bool { return budget.Guards(&goal.pod) })
	}
	return what
}

// mark returns when the pod gets its DisruptionTarget condition, empty for never.
func (t *target) mark() v1alpha1.EvictionMark {
	policy := t.cause.Treatment.Policy
	switch {
	case t.pending.unmarkable >= markTries:
		return ""
	case policy == nil:
		return v1alpha1.EvictionMarkBefore
	}
	return policy.Mark
}

// errNotLeading and errOutdated end an attempt before a request. They are handled like a timeout:
// the pod is decided about again.
var (
	errNotLeading = fmt.Errorf("the lease was not renewed in time: %w", context.DeadlineExceeded)
	errOutdated   = fmt.Errorf("the object that carries the taint was read too long ago: %w", context.DeadlineExceeded)
)

// method returns how a pod is evicted because of a reason. After deleteAfter a pod is deleted in
// spite of its budget, but only if the budget has refused before: a pod that was held by
// something else still asks its budget first.
func (t *target) method(reason *dueReason) act.Method {
	policy := reason.Treatment.Policy
	if policy == nil || policy.Method != v1alpha1.EvictionMethodEvict {
		return act.Delete
	}
	if end, ending := reason.patience(); ending && !t.now.Before(end) && t.pending.blocked {
		return act.Delete
	}
	return act.Evict
}

// patience returns until when the budget of the pod is respected; false if it always is, or never as with
// method Delete, which has no deleteAfter.
func (r *dueReason) patience() (end time.Time, ending bool) {
	policy := r.Treatment.Policy
	if policy == nil || policy.DeleteAfter == nil {
		return time.Time{}, false
	}
	return r.At.Add(*policy.DeleteAfter), true
}

// blocked records that the budget of a pod refused its eviction, and adds to held all reasons for
// which the budget would be asked. The pod may still leave for other reasons.
func (e *Evictor) blocked(ctx context.Context, goal *target, done act.Attempt, err error, held heldReasons) {
	goal.pending = e.failed(ctx, goal.pod.Key, done, err)
	wait := min(blockedBase<<min(goal.pending.failures-1, 5), checks.Recheck)
	for i := range goal.due {
		reason := &goal.due[i]
		if reason.held != nil || (reason != goal.cause && goal.method(reason) != act.Evict) {
			continue
		}
		hold := checks.NewHold(checks.Budget, reason.Treatment.Policy)
		hold.Again = wait
		if end, ending := reason.patience(); ending {
			hold.Again = min(wait, max(end.Sub(e.clock.Now()), time.Millisecond))
		}
		held[reason.Origin()] = hold
		traceHold(ctx, reason, hold)
	}
}

// evicted ends an eviction that was carried out. No other worker handles the pod until then.
func (e *Evictor) evicted(ctx context.Context, goal *target, how act.Method) {
	key := goal.pod.Key
	source := goal.cause.Taint.Source
	now := e.clock.Now()
	late := now.Sub(goal.cause.At)
	traceResult(ctx, string(act.Evicted))
	if _, _, ok := e.state.close(key, act.Evicted, e.tracker.SetTerminating); !ok {
		return
	}
	e.metrics.ended(source.Kind, how, act.Evicted, late)
	e.announce.evicted(goal, how, e.tracker.UIDOf(goal.cause.Taint.Author()))
	e.fit.SawEviction()
	e.watchLoops(ctx, goal, now)
	logr.FromContextOrDiscard(ctx).Info("evicted pod", "pod", key.String(), "uid", key.UID, "node", goal.pod.NodeName, "method", how,
		"because", goal.decision.Reasons(), "late", late.String())
}

// failed records a failed attempt, reports repeated failures in the log and in an event, and
// returns a copy of the eviction.
func (e *Evictor) failed(ctx context.Context, key tracker.Key, done act.Attempt, err error) pendingEviction {
	failure := act.Classify(err)
	traceFailure(ctx, failure)
	e.metrics.retries.WithLabelValues(string(failure)).Inc()
	now := e.state.fail(key, failure, done)
	if !failure.Blocked() {
		e.state.free(key, true)
	}
	logger := logr.FromContextOrDiscard(ctx)
	if now.failures < heldUpAfter || now.logged == failure {
		logger.V(1).Info("cannot evict pod yet", "pod", key.String(), "reason", err.Error())
	} else {
		e.state.with(key, func(of *pendingEviction) { of.logged = failure })
		logger.Info("eviction is held up", "pod", key.String(), "failures", now.failures, "reason", err.Error())
	}
	if now.failures >= heldUpAfter && now.announced != failure && e.announce.heldUp(key, now.source, err) {
		e.state.with(key, func(of *pendingEviction) { of.announced = failure })
	}
	return now
}

// errFound is the error for a pod that one request did not find and the next found.
var errFound = errors.New("pod was not found by one request and found by the next")

// reread reads a pod after a conflict, or if notFound, after a request did not find it. The next
// attempt decides about the pod as it was read, without waiting for the watch. A pod that is not
// found twice is gone: a proxy in front of the API server may answer a single 404, and a pod that
// counts as gone is not processed again.
func (e *Evictor) reread(ctx context.Context, key tracker.Key, notFound bool) error {
	pod, err := e.options.Client.CoreV1().Pods(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch isGone := act.Classify(err) == act.NotFound; {
	case isGone && !notFound:
		return e.reread(ctx, key, true)
	case isGone, err == nil && pod.UID != key.UID:
		e.overtaken(ctx, key, act.Gone, func(key tracker.Key) { e.tracker.DeletePod(key) })
		return nil
	case err != nil:
		return fmt.Errorf("read pod: %w", err)
	}
	e.PodsChanged(e.tracker.RefreshPod(tracker.PodOf(pod)))
	if notFound {
		return act.NewConflict(key.Name, errFound)
	}
	return nil
}
