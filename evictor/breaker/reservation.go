package breaker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// reservation is what this replica lets go because of one approval in one term. The
// mutex of the term guards it.
type reservation struct {
	name string
	uid  types.UID
	// stands is what stands in the status; nil while that has not been read.
	stands *release
	most   int
	leases leases
	// lost are writes of which nobody knows whether they went through.
	lost []releasing
	// stale is true after a write that failed, until the status is read again.
	stale   bool
	demand  int
	waiting crowd
	pause   time.Time
	wake    chan struct{}
}

// release is how many pods were let go, by the write with an ID.
type release struct {
	pods int
	id   string
}

// releasing is what is to be written.
type releasing struct {
	release

	granted  *lease
	returned map[*lease]int
}

// stir has the clerk look at the reservation. It does not block.
func (r *reservation) stir() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take returns leave for one pod, or how long to wait until more of it may be written. The
// mutex of the term is held.
func (r *reservation) take(now time.Time) (*lease, time.Duration) {
	if l := r.leases.take(now); l != nil {
		return l, 0
	}
	r.demand++
	r.stir()
	return nil, r.waiting.wait(now, r.pause.Sub(now))
}

// exhausted reports whether the approval lets no more pods go.
func (r *reservation) exhausted() bool {
	return r.stands != nil && r.stands.pods >= r.most && r.leases.unused() == 0 && len(r.lost) == 0
}

// serve looks at what is let go because of one approval, and writes it before pods go.
func (k *Keeper) serve(ctx context.Context, t *term, r *reservation) (rest, error) {
	if idle, ok := t.idle(r, k.options.Local.Now()); ok {
		return idle, nil
	}
	var object v1alpha1.EvictionApproval
	err := k.options.Reader.Get(ctx, types.NamespacedName{Name: r.name}, &object)
	switch {
	case apierrors.IsNotFound(err), err == nil && (object.UID != r.uid || object.DeletionTimestamp != nil):
		t.withdrawn(r)
		return rest{done: true}, nil
	case err != nil:
		return rest{}, fmt.Errorf("read EvictionApproval %s: %w", r.name, err)
	}
	now, server := k.options.Local.Now(), k.options.Clock.Now()
	p, change := t.release(r, &object, now, server)
	if !change {
		return rest{again: idlePause}, nil
	}
	before := object.DeepCopy()
	object.Status.Released, object.Status.ReleaseID = int32(p.pods), p.id //nolint:gosec // No more than maxPods.
	if object.Status.UsedAt == nil {
		object.Status.UsedAt = new(metav1.NewTime(server))
	}
	err = k.write(ctx, &object, before)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		r.failed(&p, err)
		return rest{}, fmt.Errorf("write status of EvictionApproval %s: %w", r.name, err)
	}
	r.commit(&p)
	logr.FromContextOrDiscard(ctx).V(1).Info("let pods go by an approval", "approval", r.name, "released", p.pods)
	return rest{pause: writePause, again: r.again(now)}, nil
}

// idle returns when to look again at a reservation about which nothing is to be done.
// One whose approval does not count any more is forgotten: if it is asked for again,
// it is read again.
func (t *term) idle(r *reservation, now time.Time) (rest, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.leases.withdraw(now, 0)
	room := r.leases.room(now)
	if r.stands == nil || r.stale || len(r.lost) > 0 || r.leases.unused() > room || r.demand > room {
		return rest{}, false
	}
	r.demand = 0
	counts := slices.ContainsFunc(t.approvals, func(a approval) bool { return a.uid == r.uid })
	if !counts && room == 0 && r.leases.open(now) == 0 {
		delete(t.reservations, r.uid)
		return rest{done: true}, true
	}
	return rest{again: r.again(now)}, true
}

// again returns after how long the reservation is to be looked at unasked.
func (r *reservation) again(now time.Time) time.Duration {
	again := idlePause
	for _, l := range r.leases {
		if l.room > 0 {
			again = min(again, max(l.usable.Sub(now), 0)+time.Millisecond)
		}
	}
	if r.leases.open(now) > 0 {
		again = min(again, trippedPause) // They may come back.
	}
	return again
}

// release takes in an approval that was read, and returns what is to be written, and
// false for nothing.
func (t *term) release(r *reservation, object *v1alpha1.EvictionApproval, now, server time.Time) (releasing, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.learn(release{int(object.Status.Released), object.Status.ReleaseID})
	r.most = int(object.Spec.MaxPods)
	r.leases.withdraw(now, 0)
	p := releasing{release: release{pods: r.stands.pods, id: string(uuid.NewUUID())}, returned: map[*lease]int{}}
	for _, l := range r.leases {
		if l.back > 0 {
			p.returned[l] = l.back
			p.pods -= l.back
		}
	}
	wanted := r.demand - r.leases.room(now)
	r.demand = 0
	ends := object.CreationTimestamp.Add(object.Spec.ExpiresAfter.Duration).Sub(server)
	if n := min(wanted, mostAtOnce, r.most-p.pods); n > 0 && ends > 0 {
		usable := now.Add(min(usableFor, ends))
		p.granted = &lease{usable: usable, end: usable.Add(idlePause), size: n, room: n}
		p.pods += n
	}
	p.pods = max(p.pods, 0)
	return p, p.granted != nil || len(p.returned) > 0
}

// learn takes in what stands in the status, see breaker.learn.
func (r *reservation) learn(stands release) {
	r.stale = false
	if r.stands != nil && *r.stands == stands {
		return
	}
	for i := range r.lost {
		if r.lost[i].release == stands {
			r.commit(&r.lost[i])
			return
		}
	}
	r.stands, r.leases, r.lost = &stands, nil, nil
}

// commit takes in what was written.
func (r *reservation) commit(p *releasing) {
	r.stands, r.lost = &p.release, nil
	kept := leases{}
	for _, l := range r.leases {
		l.back -= p.returned[l]
		if l.room+l.back+l.open > 0 {
			kept = append(kept, l)
		}
	}
	if p.granted != nil {
		kept = append(kept, p.granted)
	}
	r.leases = kept
}

// withdrawn drops an approval that is not there any more.
func (t *term) withdrawn(r *reservation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.leases = nil
	delete(t.reservations, r.uid)
	t.approvals = slices.DeleteFunc(slices.Clone(t.approvals), func(a approval) bool { return a.uid == r.uid })
}
