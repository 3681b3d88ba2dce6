package breaker

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// sameAppearance is how long after its use an approval is still for a taint that seems
// to have come only then: replicas hear of one taint at different times.
const sameAppearance = 5 * time.Second

// approval is what an EvictionApproval approves, as it was last listed.
type approval struct {
	name    string
	uid     types.UID
	created time.Time
	// policy is the name of the EvictionPolicy whose breaker the approval is for. If it is
	// empty, the approval is for a taint of a carrier.
	policy  string
	carrier tracker.Source
	taint   v1alpha1.ApprovedTaint
	most    int
	// ends is until when it can be used.
	ends time.Time
	// used is when it was used; zero for not yet.
	used time.Time
}

func approvalOf(in *v1alpha1.EvictionApproval) approval {
	a := approval{
		name: in.Name, uid: in.UID, created: in.CreationTimestamp.Time, taint: in.Spec.Taint, most: int(in.Spec.MaxPods),
		ends: in.CreationTimestamp.Add(in.Spec.ExpiresAfter.Duration),
	}
	if at := in.Status.UsedAt; at != nil {
		a.used = at.Time
	}
	switch {
	case in.Spec.EvictionPolicy != "":
		a.policy = in.Spec.EvictionPolicy
	case in.Spec.DeviceTaintRule != "":
		a.carrier = tracker.Source{Kind: tracker.SourceRule, Name: in.Spec.DeviceTaintRule}
	case in.Spec.ResourceSlicePatch != "":
		a.carrier = tracker.Source{Kind: tracker.SourcePatch, Name: in.Spec.ResourceSlicePatch}
	default:
		a.carrier = tracker.Source{Kind: tracker.SourceNode, Name: in.Spec.Node}
	}
	return a
}

// standing is where the taint of a cause stands, and when it was written there. For a
// patch that is when the first of its rules was: they are written one after the other.
type standing struct {
	source  tracker.Source
	written time.Time
}

// names reports whether the approval is for the taint of a cause, as it stands in a source.
func (a *approval) names(source tracker.Source, cause Cause) bool {
	return a.policy == "" && a.carrier.Kind == source.Kind && a.carrier.Name == source.Name && a.taint.Key == cause.Key && a.taint.Effect == cause.Effect
}

// covers reports whether the approval is for a cause, wherever its taint stands. One that
// was used is for the appearance of the taint for which it was used, and for no later one.
func (a *approval) covers(cause Cause, stands []standing, now time.Time) bool {
	return now.Before(a.ends) && slices.ContainsFunc(stands, func(s standing) bool {
		return a.names(s.source, cause) && (a.used.IsZero() || !s.written.After(a.used.Add(sameAppearance)))
	})
}

// approved returns a permit if an approval lets a pod go that is held, or how long to
// wait until that is known; false if none does.
func (k *Keeper) approved(t *term, cause Cause) (Answer, bool) {
	if k.options.Standing == nil || cause.Effect != corev1.TaintEffectNoExecute {
		return Answer{}, false
	}
	server := k.options.Clock.Now()
	var stands []standing
	for _, source := range t.named(cause) {
		if taint, ok := k.options.Standing(source, cause.Key); ok {
			stands = append(stands, standing{source, taint.Written(server)})
		}
	}
	if len(stands) == 0 {
		return Answer{}, false
	}
	return t.approved(cause, stands, server, k.options.Local.Now())
}

// named returns those of the carrier and the patch of a cause that an approval names.
func (t *term) named(cause Cause) []tracker.Source {
	t.mu.Lock()
	defer t.mu.Unlock()
	var named []tracker.Source
	for _, source := range []tracker.Source{cause.Carrier, cause.Patch.Source()} {
		if slices.ContainsFunc(t.approvals, func(a approval) bool { return a.names(source, cause) }) {
			named = append(named, source)
		}
	}
	return named
}

func (t *term) approved(cause Cause, stands []standing, server, now time.Time) (Answer, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.approvals {
		a := &t.approvals[i]
		if !a.covers(cause, stands, server) {
			continue
		}
		r := t.reservationOf(a)
		if r.exhausted() {
			continue
		}
		l, wait := r.take(now)
		if l == nil {
			return Answer{Wait: wait}, true
		}
		return Answer{Permit: &Permit{mu: &t.mu, leases: []*lease{l}}}, true
	}
	return Answer{}, false
}

// approvedOf returns the reservation of an approval for the breaker of a policy; nil if
// none lets pods go. The mutex is held.
func (t *term) approvedOf(policy *eviction.Policy, server time.Time) *reservation {
	for i := range t.approvals {
		a := &t.approvals[i]
		if a.policy != policy.Name || !server.Before(a.ends) {
			continue
		}
		if r := t.reservationOf(a); !r.exhausted() {
			return r
		}
	}
	return nil
}

// released returns a permit if approvals for their policies let a pod go that breakers
// hold, and the breakers of all other policies do as well; false if a breaker holds it for
// which there is no approval. What an approval lets go counts for no breaker that holds.
func (k *Keeper) released(t *term, policies []*eviction.Policy) (Answer, bool) {
	server, now := k.options.Clock.Now(), k.options.Local.Now()
	rest, approved := t.split(policies, server)
	if len(approved) == 0 {
		return Answer{}, false
	}
	permit := &Permit{mu: &t.mu}
	if len(rest) > 0 {
		answer := t.ask(rest, now)
		if answer.Permit == nil {
			return answer, true
		}
		permit = answer.Permit
	}
	if wait := t.take(approved, permit, now); wait > 0 {
		permit.Settle(false)
		return Answer{Wait: wait}, true
	}
	return Answer{Permit: permit}, true
}

// split returns the reservations of the approvals for those of the policies whose breakers
// hold, and the other policies.
func (t *term) split(policies []*eviction.Policy, server time.Time) (rest []*eviction.Policy, approved []*reservation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, policy := range policies {
		var r *reservation
		if t.of(policy).tripped() {
			r = t.approvedOf(policy, server)
		}
		if r == nil {
			rest = append(rest, policy)
		} else {
			approved = append(approved, r)
		}
	}
	return rest, approved
}

// take adds leave for one pod from each reservation to the permit. It returns how long to
// wait if one of them has none to give now.
func (t *term) take(from []*reservation, permit *Permit, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range from {
		l, wait := r.take(now)
		if l == nil {
			return wait
		}
		permit.leases = append(permit.leases, l)
	}
	return 0
}

// reservationOf returns what is let go because of an approval. The mutex is held.
func (t *term) reservationOf(a *approval) *reservation {
	r, ok := t.reservations[a.uid]
	if !ok {
		r = &reservation{name: a.name, uid: a.uid, wake: make(chan struct{}, 1)}
		t.reservations[a.uid] = r
		if !t.over {
			t.serve(r)
		}
	}
	return r
}

// follow has the approvals listed while a breaker holds, until ctx is done.
func (k *Keeper) follow(ctx context.Context, t *term) {
	for {
		if !k.sleep(ctx, trippedPause, t.look) {
			return
		}
		k.list(ctx, t)
	}
}

// list reads the approvals, and names the policies whose breakers hold if there is one
// that there was not before.
func (k *Keeper) list(ctx context.Context, t *term) {
	tripped := t.tripped()
	if len(tripped) == 0 || k.options.Approvals == nil {
		t.approve(nil)
		return
	}
	var list v1alpha1.EvictionApprovalList
	if err := k.options.Approvals.List(ctx, &list); err != nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("cannot list EvictionApprovals yet", "reason", err.Error())
		return
	}
	server := k.options.Clock.Now()
	var approvals []approval
	for i := range list.Items {
		a := approvalOf(&list.Items[i])
		if list.Items[i].DeletionTimestamp == nil && server.Before(a.ends) {
			approvals = append(approvals, a)
		}
	}
	if t.approve(approvals) {
		for _, policy := range tripped {
			k.evictor.WakeHeld(policy)
		}
	}
}

// approve takes in what is approved, and reports whether there is something new. The
// oldest approval is used first.
func (t *term) approve(approvals []approval) (news bool) {
	slices.SortFunc(approvals, func(a, b approval) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name, b.name))
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	known := map[types.UID]struct{}{}
	for i := range t.approvals {
		known[t.approvals[i].uid] = struct{}{}
	}
	for i := range approvals {
		if _, ok := known[approvals[i].uid]; !ok {
			news = true
		}
	}
	t.approvals = approvals
	return news
}
