package breaker

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// attend looks at one breaker: it writes what pods are granted before they go, that it
// holds, and that it does not any more. What stands in the status is read just before,
// and the write is for what was read: of two leaders one has to read again what the
// other granted.
func (k *Keeper) attend(ctx context.Context, t *term, b *breaker) (rest, error) {
	o := k.outside(t, b)
	if r, ok := t.resting(b, o); ok {
		return r, nil
	}
	var object v1alpha1.EvictionPolicy
	err := k.options.Reader.Get(ctx, types.NamespacedName{Name: b.name}, &object)
	switch {
	case apierrors.IsNotFound(err), err == nil && object.UID != b.uid:
		return k.bereft(t, b, o), nil
	case err != nil:
		return rest{}, fmt.Errorf("read EvictionPolicy %s: %w", b.name, err)
	}
	// The answer may have taken its time.
	o.now, o.server = k.options.Local.Now(), k.options.Clock.Now()
	k.hear(ctx, t, b, &object, o)
	p, change := t.prepare(b, &object, o)
	if !change {
		return t.rest(b, k.options.Local.Now(), 0), nil
	}
	before := object.DeepCopy()
	object.Status.Breaker = p.state.Status()
	if err := k.write(ctx, &object, before); err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		b.failed(&p, err)
		return rest{}, fmt.Errorf("write status of EvictionPolicy %s: %w", b.name, err)
	}
	t.mu.Lock()
	b.commit(&p)
	t.mu.Unlock()
	k.told(ctx, t, b, &p)
	return t.rest(b, k.options.Local.Now(), writePause), nil
}

// hear takes in what stands in the status, and says what is new there. Whoever a breaker
// held that does not hold any more is asked about again, whoever has written that.
func (k *Keeper) hear(ctx context.Context, t *term, b *breaker, object *v1alpha1.EvictionPolicy, o *outside) {
	found, ceased := t.learn(ctx, b, object, o)
	switch {
	case found != nil:
		k.told(ctx, t, b, found)
	case ceased:
		k.evictor.WakeHeld(b.uid)
	}
	k.options.Metrics.tripped.Set(float64(len(t.tripped())))
}

// write writes the status of an object as it was changed, if it stands there as it was
// read.
func (k *Keeper) write(ctx context.Context, object, before client.Object) error {
	err := k.options.Status.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	outcome := outcomeWritten
	switch {
	case apierrors.IsConflict(err):
		outcome = outcomeConflict
	case err != nil:
		outcome = outcomeFailed
	}
	k.options.Metrics.writes.WithLabelValues(outcome).Inc()
	return err
}

// outside takes what a look at a breaker needs from elsewhere.
func (k *Keeper) outside(t *term, b *breaker) *outside {
	settled := k.evictor.Settled()
	var held map[types.UID]int
	if t.holds(b) {
		held = k.evictor.HeldByPolicy() // Before it is looked which breakers hold: if one ceases meanwhile, it shows.
	}
	o := &outside{
		now: k.options.Local.Now(), server: k.options.Clock.Now(), inForce: k.options.Policies().ByUID(b.uid),
		live: k.options.Live(), held: -1, attempt: k.options.Timeout,
		id: string(uuid.NewUUID()),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handOver(b)
	if b.steadied(o.now, settled) && held != nil {
		o.held = b.holding(held)
	}
	return o
}

// bereft is for a breaker whose policy is not there. As long as this replica judges by
// it, it lets nobody go.
func (k *Keeper) bereft(t *term, b *breaker, o *outside) rest {
	if o.inForce != nil {
		return rest{pause: trippedPause, again: trippedPause}
	}
	t.forget(b)
	k.options.Metrics.tripped.Set(float64(len(t.tripped())))
	return rest{done: true}
}

// told says what was written.
func (k *Keeper) told(ctx context.Context, t *term, b *breaker, p *plan) {
	log := logr.FromContextOrDiscard(ctx).WithValues("policy", b.name)
	k.options.Metrics.tripped.Set(float64(len(t.tripped())))
	reference := &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "EvictionPolicy", Name: b.name, UID: b.uid,
	}
	if p.tripped {
		k.options.Metrics.trips.Inc()
		log.Info("breaker holds evictions", "limit", p.state.Limit)
		k.event(reference, corev1.EventTypeWarning, "BreakerTripped", trippedMessage(p.state.Limit, b.policy))
		t.stirApprovals()
	}
	if p.released != "" {
		k.options.Metrics.releases.WithLabelValues(p.released).Inc()
		log.Info("breaker does not hold evictions any more", "reason", p.released)
		k.event(reference, corev1.EventTypeNormal, "BreakerReleased", releasedMessages[p.released])
		k.evictor.WakeHeld(b.uid)
	}
	if p.granted != nil {
		log.V(1).Info("granted leave to go", "pods", p.granted.size)
	}
}

func (k *Keeper) event(about *corev1.ObjectReference, eventType, reason, message string) {
	if k.options.Recorder != nil {
		k.options.Recorder.Eventf(about, eventType, reason, "%s", message)
	}
}

var releasedMessages = map[string]string{
	releasedAsFits:  "What was held fits into the limit again, and is evicted.",
	releasedByLimit: "The limit was raised or removed: what was held is evicted as far as it allows.",
}

func trippedMessage(limit int, policy *eviction.Policy) string {
	return fmt.Sprintf("%d pods were let go within %s, which is the limit. What else has to leave is held: until an EvictionApproval lets it go, until it fits into the limit, or until the limit is raised.",
		limit, policy.Breaker.Window)
}
