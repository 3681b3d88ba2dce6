package breaker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/controller"
)

// check reads the object of a ledger and writes its status, if there is something to write: a grant
// before its pods are evicted, room that is given back, and whether the breaker is tripped. The resource
// version that was read is a precondition of the write, so that one of two leaders has to read the
// grants of the other. It returns how long to pause.
func (k *Keeper) check(ctx context.Context, l *ledger) (time.Duration, error) {
	in, pause, idle := k.situation(l)
	if idle {
		return pause, nil
	}
	object, kind := l.object()
	err := k.options.Reader.Get(ctx, types.NamespacedName{Name: l.name}, object)
	switch {
	case apierrors.IsNotFound(err), err == nil && (object.GetUID() != l.uid || l.approval && object.GetDeletionTimestamp() != nil):
		if in.inForce == nil { // Otherwise pods wait until the policy is not in force any more.
			k.mu.Lock()
			delete(k.ledgers, l.uid)
			k.approvals = slices.DeleteFunc(slices.Clone(k.approvals), func(a *v1alpha1.EvictionApproval) bool { return a.UID == l.uid })
			k.mu.Unlock()
		}
		return activePause, nil
	case err != nil:
		return 0, fmt.Errorf("read %s %s: %w", kind, l.name, err)
	}
	in.now, in.server = k.options.Local.Now(), k.options.Clock.Now() // The read may have taken long.
	found, spec := decode(object, in.server, in.now)
	lost, next, foreign, pause := k.observe(l, found, &spec, in)
	if foreign && !l.approval {
		logr.FromContextOrDiscard(ctx).Info("another writer changed what a breaker counts", "policy", l.name)
	}
	if lost != nil {
		k.report(ctx, l, lost)
	}
	if next == nil {
		return pause, nil
	}
	before := object.DeepCopyObject().(client.Object)
	next.state.encode(object, in.server)
	err = k.options.Status.Patch(ctx, object, controller.ChangesTo(before))
	k.options.Metrics.written(err)
	k.finish(l, next, err)
	if err != nil {
		return 0, fmt.Errorf("write status of %s %s: %w", kind, l.name, err)
	}
	k.report(ctx, l, next)
	return writePause, nil
}

// situation returns what a plan depends on. It reports whether there is nothing to read or write for a
// ledger, and how long to pause then: pods that asked in vain do not have the ledger checked each time. It
// drops the ledger of an approval that is not listed any more.
func (k *Keeper) situation(l *ledger) (in *situation, pause time.Duration, idle bool) {
	settled, held := k.evictor.Settled(), -1
	if slices.Contains(k.tripped(), l.uid) {
		held = k.evictor.HeldByPolicy()[l.uid]
	}
	in = &situation{
		now: k.options.Local.Now(), server: k.options.Clock.Now(), inForce: k.options.Policies().ByUID(l.uid),
		live: k.options.Live(), held: held, attempt: k.options.Timeout, id: string(uuid.NewUUID()),
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !settled || !l.trip.Equal(l.state.tripped) { // Pods are held after the write that trips the breaker.
		l.incompleteAt, l.trip = in.now, l.state.tripped
	}
	if in.now.Sub(l.incompleteAt) < fitsAfter {
		in.held = -1
	}
	if l.stale(in) || l.next(in) != nil {
		return in, 0, false
	}
	if l.approval && len(l.reservations) == 0 && !isListed(k.approvals, l.uid) {
		delete(k.ledgers, l.uid)
	}
	return in, l.forgetDemand(), true
}

// observe takes over the state and the terms of an object that was read. The state is that of the last
// read or write, that of a lost write, which observe returns, or that of another writer. This replica
// cannot know what the other writer made of its grants, nor whether a lost write was carried out before: it
// drops its reservations, and forgets which pods it counted by which grant. observe returns the
// next write, or how long to pause if there is none.
func (k *Keeper) observe(l *ledger, found state, spec *terms, in *situation) (lost, next *plan, foreign bool, pause time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := l.terms != nil; !known || !l.state.equal(&found) {
		at := slices.IndexFunc(l.lostWrites, func(p plan) bool { return p.state.equal(&found) })
		if foreign = known && at < 0; at < 0 {
			l.state, l.reservations, l.lostWrites = found, nil, nil
			clear(l.counted)
			clear(l.moving)
		} else {
			lost = &l.lostWrites[at]
			l.commit(lost)
		}
	}
	l.read, l.terms = in.now, spec
	next = l.next(in)
	pause = l.forgetDemand() // Pods that ask during the write count for the next one.
	if l.stale(in) {
		pause = writePause // The next check reads the object again.
	}
	return lost, next, foreign, pause
}

// finish takes over the result of a write.
func (k *Keeper) finish(l *ledger, p *plan, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		l.commit(p)
		return
	}
	l.read = time.Time{}
	if act.Classify(err).Ambiguous() { // The write may be carried out all the same.
		l.lostWrites = append(l.lostWrites[max(len(l.lostWrites)+1-maxLost, 0):], *p)
	}
}

// report tells of a write that was carried out: in the log, in metrics and in events.
func (k *Keeper) report(ctx context.Context, l *ledger, p *plan) {
	log := logr.FromContextOrDiscard(ctx)
	if l.approval {
		log.V(1).Info("let pods go by an approval", "approval", l.name, "released", p.state.pods())
		return
	}
	log = log.WithValues("policy", l.name)
	if p.tripped {
		k.options.Metrics.trips.Inc()
		log.Info("breaker holds evictions", "limit", p.state.limit)
		k.event(l, corev1.EventTypeWarning, "BreakerTripped", fmt.Sprintf(
			"%d pods were let go within %s, which is the limit. What else has to leave is held: until an EvictionApproval lets it go, until it fits into the limit, or until the limit is raised.",
			p.state.limit, p.terms.limit.Window))
	}
	if p.released != "" {
		k.options.Metrics.releases.WithLabelValues(p.released).Inc()
		log.Info("breaker does not hold evictions any more", "reason", p.released)
		k.event(l, corev1.EventTypeNormal, "BreakerReleased", releasedMessages[p.released])
	}
	if p.granted != nil {
		log.V(1).Info("granted permits", "pods", p.granted.pods)
	}
}

func (k *Keeper) event(l *ledger, eventType, reason, message string) {
	about := &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EvictionPolicy", Name: l.name, UID: l.uid}
	k.options.Recorder.Eventf(about, eventType, reason, "%s", message)
}

var releasedMessages = map[string]string{
	releasedAsFits:  "What was held fits into the limit again, and is evicted.",
	releasedByLimit: "The limit was raised or removed: what was held is evicted as far as it allows.",
}
