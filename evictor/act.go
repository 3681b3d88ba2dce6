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

// heldUpAfter is how many attempts have to fail in a row before an event tells of
// it: one that fails now and then is nobody's concern.
const heldUpAfter = 5

// blockedBase is the first wait of a pod that its budget does not let go. It doubles
// up to checks.Recheck; that a budget allows more is told by the watch.
const blockedBase = time.Second

// act makes the requests of one attempt to evict a pod, and ends what the checks have given. If a
// budget blocks the pod, the reasons that this holds are added to held.
func (e *Evictor) act(ctx context.Context, goal *target, pass checks.Pass, held heldReasons) (blocked bool, err error) {
	key := goal.pod.Key
	how, done, err := e.request(ctx, goal, pass)
	if done.Answer != nil {
		e.PodsChanged(e.tracker.RefreshPod(tracker.PodOf(done.Answer)))
	}
	switch failure := act.Classify(err); {
	case failure == act.Conflict && !done.Changed:
		e.failed(ctx, key, done, err)
		return false, errors.Join(err, e.reread(ctx, key, false))
	case failure.Blocked():
		e.blocked(ctx, goal, done, err, held)
		return true, nil
	case failure != act.NoFailure:
		e.failed(ctx, key, done, err)
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
	e.PodsChanged(e.book.recover(e.local.Now()))
	return false, nil
}

// request makes the requests, and tells the checks how they ended. After a panic during the requests the pod
// may have left.
func (e *Evictor) request(ctx context.Context, goal *target, pass checks.Pass) (how act.Method, done act.Attempt, err error) {
	end := checks.Stayed
	defer func() { pass.End(e.now(), end) }()
	what := e.order(goal)
	e.book.try(goal.pod.Key, what.Method)
	end = checks.Left
	done, err = e.effector.Evict(ctx, what)
	if !done.MayHaveWorked(err) {
		end = checks.Stayed
	}
	return what.Method, done, err
}

// order returns the requests to be made for a pod.
func (e *Evictor) order(goal *target) act.Order {
	what := act.Order{
		Pod: goal.pod, Cause: goal.cause.Taint.Source.Kind, Method: goal.method(goal.cause), Mark: goal.mark(),
		Holds: func() error { return e.still(goal) },
	}
	if what.Method == act.Evict || what.Mark == v1alpha1.EvictionMarkByEvictionAPI {
		what.Guarded = slices.ContainsFunc(e.tracker.Budgets(goal.pod.Namespace), func(budget tracker.Budget) bool { return budget.Guards(&goal.pod) })
	}
	return what
}

// mark returns how a pod is marked before it is deleted, empty for not at all.
func (t *target) mark() v1alpha1.EvictionMark {
	policy := t.cause.Treatment.Policy
	switch {
	case t.entry.unmarkable >= markTries:
		return ""
	case policy == nil:
		return v1alpha1.EvictionMarkBefore
	}
	return policy.Mark
}

// errNotLeading and errOutdated end an attempt before a request. As after an answer that did
// not come in time, the pod is decided about anew.
var (
	errNotLeading = fmt.Errorf("the lease was not renewed in time: %w", context.DeadlineExceeded)
	errOutdated   = fmt.Errorf("the object that carries the taint was read too long ago: %w", context.DeadlineExceeded)
)

// still returns an error if a request that makes a pod leave must not be made any more: the
// lease may have been lost since the attempt began, and the machine suspended (INV-3, INV-6).
func (e *Evictor) still(goal *target) error {
	switch {
	case !e.options.Leads():
		return errNotLeading
	case !e.confirm.Recent(goal.cause.Taint.Source.Named()):
		return errOutdated
	}
	return nil
}

// method returns how a pod is made to leave because of a reason. A pod is deleted in spite of its
// budget only if that did not let it go before: however long it was held by anything else, its budget is
// asked.
func (t *target) method(reason *dueReason) act.Method {
	policy := reason.Treatment.Policy
	if policy == nil || policy.Method != v1alpha1.EvictionMethodEvict {
		return act.Delete
	}
	if end, ending := reason.patience(); ending && !t.now.Before(end) && t.entry.blocked {
		return act.Delete
	}
	return act.Evict
}

// patience returns until when the budget of a pod is respected; false for always.
func (r *dueReason) patience() (end time.Time, ending bool) {
	policy := r.Treatment.Policy
	if policy == nil || policy.Method != v1alpha1.EvictionMethodEvict || policy.DeleteAfter == nil {
		return time.Time{}, false
	}
	return r.At.Add(*policy.DeleteAfter), true
}

// blocked records that its budget did not let a pod go, and adds the reasons that this holds: those for
// which the same budget is to be asked. For any other the pod still leaves.
func (e *Evictor) blocked(ctx context.Context, goal *target, done act.Attempt, err error, held heldReasons) {
	goal.entry = e.failed(ctx, goal.pod.Key, done, err)
	wait := min(blockedBase<<min(goal.entry.failures-1, 5), checks.Recheck)
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

// evicted ends an eviction that was carried out. Until the tracker knows, from here or
// from the watch, the pod is as it was, and in the hands of this worker: nobody else
// acts on it.
func (e *Evictor) evicted(ctx context.Context, goal *target, how act.Method) {
	key := goal.pod.Key
	source := goal.cause.Taint.Source
	now := e.clock.Now()
	late := now.Sub(goal.cause.At)
	traceResult(ctx, string(act.Evicted))
	if _, _, ok := e.book.close(key, act.Evicted, e.tracker.SetTerminating); !ok {
		return
	}
	e.metrics.ended(source.Kind, how, act.Evicted, late)
	e.announce.evicted(goal, how, e.tracker.UIDOf(goal.cause.Taint.Author()))
	e.fit.SawEviction()
	e.watchLoops(ctx, goal, now)
	logr.FromContextOrDiscard(ctx).Info("evicted pod", "pod", key.String(), "uid", key.UID, "node", goal.pod.NodeName, "method", how,
		"because", goal.decision.Reasons(), "late", late.String())
}

// failed enters a failed attempt, tells of it when it lasts, and returns the eviction as
// it is then.
func (e *Evictor) failed(ctx context.Context, key tracker.Key, done act.Attempt, err error) entry {
	failure := act.Classify(err)
	traceFailure(ctx, failure)
	e.metrics.retries.WithLabelValues(string(failure)).Inc()
	now := e.book.fail(key, failure, done)
	if !failure.Blocked() {
		e.book.free(key, true)
	}
	logger := logr.FromContextOrDiscard(ctx)
	if now.failures < heldUpAfter || now.logged == failure {
		logger.V(1).Info("cannot evict pod yet", "pod", key.String(), "reason", err.Error())
	} else {
		e.book.with(key, func(of *entry) { of.logged = failure })
		logger.Info("eviction is held up", "pod", key.String(), "failures", now.failures, "reason", err.Error())
	}
	if now.failures >= heldUpAfter && now.announced != failure && e.announce.heldUp(key, now.source, err) {
		e.book.with(key, func(of *entry) { of.announced = failure })
	}
	return now
}

// errFound says that a pod exists that was not found just before.
var errFound = errors.New("pod was not found by one request and found by the next")

// reread reads a pod after a request showed that it is not as it was decided about. The next
// attempt decides on what it finds, so that a pod whose status changes all the time is not waited
// for. A pod that was not found before ends its eviction if it is not found once more: who
// answers for the API server may be wrong once, and a pod that is taken for gone is not looked at again.
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
