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
	"github.com/tollgate-dev/tollgate/evictor/controller"
)

// reconcile reads the object of a ledger and writes its status, if there is something to write: a grant
// before its pods are evicted, room that is given back, and whether the breaker is tripped. The resource
// version that was read is a precondition of the write, so that one of two leaders has to read the
// grants of the other. It returns how long to pause.
func (k *Keeper) reconcile(ctx context.Context, t *term, l *ledger) (time.Duration, error) {
	in := k.situation(t, l)
	if pause, ok := t.idle(l, in); ok {
		return pause, nil
	}
	object, kind := l.object()
	err := k.options.Reader.Get(ctx, types.NamespacedName{Name: l.name}, object)
	switch {
	case apierrors.IsNotFound(err), err == nil && (object.GetUID() != l.uid || l.approval && object.GetDeletionTimestamp() != nil):
		if in.inForce == nil { // Otherwise pods wait until the policy is not in force any more.
			t.drop(l)
		}
		return activePause, nil
	case err != nil:
		return 0, fmt.Errorf("read %s %s: %w", kind, l.name, err)
	}
	in.now, in.server = k.options.Local.Now(), k.options.Clock.Now() // The read may have taken long.
	found, spec := decode(object, in.server, in.now)
	lost, next, foreign, pause := t.observe(l, found, &spec, in)
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
	t.finish(l, next, err)
	if err != nil {
		return 0, fmt.Errorf("write status of %s %s: %w", kind, l.name, err)
	}
	k.report(ctx, l, next)
	return writePause, nil
}

// situation returns what a plan depends on.
func (k *Keeper) situation(t *term, l *ledger) *situation {
	settled := k.evictor.Settled()
	var byPolicy map[types.UID]int
	if slices.Contains(t.tripped(), l.uid) {
		byPolicy = k.evictor.HeldByPolicy() // Before countHeld, which notices a breaker that is released in between.
	}
	in := &situation{
		now: k.options.Local.Now(), server: k.options.Clock.Now(), inForce: k.options.Policies().ByUID(l.uid),
		live: k.options.Live(), attempt: k.options.Timeout, id: string(uuid.NewUUID()),
	}
	in.held = t.countHeld(l, in.now, settled, byPolicy)
	return in
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
		log.V(1).Info("granted permits", "pods", p.pods)
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
