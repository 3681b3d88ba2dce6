package evictor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/evicting"
	"github.com/tollgate-dev/tollgate/tracker"
)

// heldUpAfter is how many attempts have to fail in a row before an event tells of
// it: one that fails now and then is nobody's concern.
const heldUpAfter = 5

// blockedBase is the first wait of a pod that its budget does not let go. It doubles
// up to heldPause; that a budget allows more is told by the watch.
const blockedBase = time.Second

// act makes the requests of one attempt to evict a pod. It returns which of its reasons
// a budget holds, if one does.
func (e *Evictor) act(ctx context.Context, goal *target, leave passage) ([]hold, error) {
	key := goal.pod.Key
	what := e.order(goal)
	e.book.try(key, what.method)
	done, err := e.effector.evict(ctx, what)
	leave.settle(e.local.Now(), done.mayHaveWorked(err))
	if done.answer != nil {
		e.PodsChanged(e.tracker.RefreshPod(tracker.PodOf(done.answer)))
	}
	switch failure := classify(err); {
	case failure == Conflict && !done.changed:
		e.failed(ctx, key, done, err)
		return nil, errors.Join(err, e.reread(ctx, key))
	case failure.blocked():
		return e.blocked(ctx, goal, done, err), nil
	case failure != NoFailure:
		e.failed(ctx, key, done, err)
		return nil, err
	}
	switch done.outcome {
	case Evicted:
		e.evicted(ctx, goal, what.method)
	case Terminating:
		e.overtaken(ctx, key, Terminating, e.tracker.SetTerminating)
	case Gone:
		e.overtaken(ctx, key, Gone, func(key tracker.Key) { e.tracker.DeletePod(key) })
	case Unfinished:
	}
	e.PodsChanged(e.book.recover(e.local.Now()))
	return nil, nil
}

// order returns what is to be done to a pod.
func (e *Evictor) order(goal *target) order {
	what := order{
		pod: goal.pod, cause: goal.cause.Taint.Source.Kind, method: e.method(goal, &goal.cause, goal.treatment.Policy), mark: e.book.canMark(goal.pod.Key),
	}
	if what.method == methodEvict {
		what.guarded = e.guarded(&goal.pod)
	}
	return what
}

// method returns how a pod is made to leave because of a reason that a policy governs,
// nil for none. One is deleted in spite of its budget only
// if that did not let it go before: however long it was held by anything else, its
// budget is asked.
func (e *Evictor) method(goal *target, reason *Reason, policy *evicting.Policy) method {
	if policy == nil || policy.Method != v1alpha1.EvictionMethodEvict {
		return methodDelete
	}
	if end, ending := patience(reason, policy); ending && !goal.now.Before(end) && e.book.wasBlocked(goal.pod.Key) {
		return methodDelete
	}
	return methodEvict
}

// patience returns until when the budget of a pod is respected; false for always.
func (t *target) patience() (end time.Time, ending bool) {
	return patience(&t.cause, t.treatment.Policy)
}

// patience is that of one reason, which a policy governs, nil for none.
func patience(reason *Reason, policy *evicting.Policy) (end time.Time, ending bool) {
	if policy == nil || policy.Method != v1alpha1.EvictionMethodEvict || policy.DeleteAfter == nil {
		return time.Time{}, false
	}
	return reason.At.Add(*policy.DeleteAfter), true
}

// guarded reports whether a PodDisruptionBudget guards a pod.
func (e *Evictor) guarded(pod *tracker.Pod) bool {
	budgets := e.tracker.Budgets(pod.Namespace)
	for i := range budgets {
		if budgets[i].Guards(pod) {
			return true
		}
	}
	return false
}

// blocked returns the reasons that its budget holds, of a pod that it did not let go, and
// when to ask again. It is the same budget for all that are to ask it; for one that is
// not, or not any more, the pod still leaves.
func (e *Evictor) blocked(ctx context.Context, goal *target, done attempt, err error) []hold {
	now := e.failed(ctx, goal.pod.Key, done, err)
	wait := min(blockedBase<<min(now.failures-1, 5), heldPause)
	var holds []hold
	for i := range goal.open.because {
		reason, policy := &goal.open.because[i], goal.open.treatment(i).Policy
		asked := originOf(reason) == originOf(&goal.cause)
		if !asked && e.method(goal, reason, policy) != methodEvict {
			continue
		}
		held := newHold(reason, HoldBudget, policy)
		held.again = wait
		if end, ending := patience(reason, policy); ending {
			held.again = min(wait, max(end.Sub(e.clock.Now()), time.Millisecond))
		}
		holds = append(holds, held)
	}
	return holds
}

// evicted ends an eviction that was carried out. Until the tracker knows, from here or
// from the watch, the pod is as it was, and in the hands of this worker: nobody else
// acts on it.
func (e *Evictor) evicted(ctx context.Context, goal *target, how method) {
	key := goal.pod.Key
	source := goal.cause.Taint.Source
	now := e.clock.Now()
	late := now.Sub(goal.cause.At)
	if _, _, ok := e.book.close(key, Evicted, e.tracker.SetTerminating); !ok {
		return
	}
	e.metrics.ended(source.Kind, how, Evicted, late)
	e.announce.evicted(goal, how, e.tracker.UIDOf(goal.cause.Taint.Author()))
	e.fit.SawEviction(now)
	e.watchLoops(ctx, goal, now)
	logr.FromContextOrDiscard(ctx).Info("evicted pod", "pod", key.String(), "uid", key.UID, "node", goal.pod.NodeName, "method", how,
		"because", reasons(goal.decision.Because), "late", late.String())
}

// failed enters a failed attempt, tells of it when it lasts, and returns the eviction as
// it is then.
func (e *Evictor) failed(ctx context.Context, key tracker.Key, done attempt, err error) entry {
	failure := classify(err)
	e.metrics.retries.WithLabelValues(string(failure)).Inc()
	now := e.book.fail(key, failure, done)
	if !failure.blocked() {
		e.book.free(key, true)
	}
	logger := logr.FromContextOrDiscard(ctx)
	if now.failures < heldUpAfter || !e.book.announce(key, failure) {
		logger.V(1).Info("cannot evict pod yet", "pod", key.String(), "reason", err.Error())
		return now
	}
	e.announce.heldUp(key, now.source, err)
	logger.Info("eviction is held up", "pod", key.String(), "failures", now.failures, "reason", err.Error())
	return now
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
		if patch := reason.Taint.Patch; patch.Name != "" {
			text += " for " + string(tracker.SourcePatch) + " " + patch.Name
		}
		texts = append(texts, text)
	}
	return texts
}
