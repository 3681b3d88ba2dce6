package breaker

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// permit allows one pod to be evicted, in one attempt that ends within the Timeout of the Keeper. It
// is safe for concurrent use.
type permit struct {
	term *term
	// reservations are those of the breakers or approvals that grant the permit.
	reservations map[*ledger]*reservation
	// pod is the pod that the breakers count, as of at.
	pod      types.UID
	at       time.Time
	breakers []*ledger
}

// settle ends the attempt. Evicted is false only if it is certain that the attempt evicted no pod: an
// attempt without an answer counts as an eviction. The room of an attempt that evicted no pod is given
// back. A permit that is not settled, or settled after its term of leadership, counts as used. The
// second call does nothing.
func (p *permit) settle(evicted bool) {
	p.term.mu.Lock()
	defer p.term.mu.Unlock()
	for _, r := range p.reservations {
		r.open--
		if !evicted {
			r.room++
		}
	}
	if evicted {
		for _, l := range p.breakers {
			// A reservation that was dropped meanwhile does not say which grant counts the pod.
			if by := p.reservations[l]; by == nil || slices.Contains(l.reservations, by) {
				l.counted[p.pod] = &counted{at: p.at, by: by}
			}
		}
	}
	p.reservations, p.breakers = nil, nil
}

// term is the state of a Keeper in one term of leadership. It is safe for concurrent use.
type term struct {
	mu      sync.Mutex
	ledgers map[types.UID]*ledger
	// approvals are those that have not expired, the oldest first; none while no breaker is tripped.
	approvals []*v1alpha1.EvictionApproval
	// start starts the worker of a ledger; nil after the end of the term.
	start func(*ledger)
}

// ledger returns the ledger of a policy or an approval, and makes it if there is none. The caller
// holds the mutex.
func (t *term) ledger(uid types.UID, name string, approval bool) *ledger {
	l, ok := t.ledgers[uid]
	if !ok {
		l = &ledger{
			account: account{moving: map[*counted]struct{}{}}, name: name, uid: uid, approval: approval,
			wake: make(chan struct{}, 1), counted: map[types.UID]*counted{}, heldByOthers: map[types.UID]int{},
		}
		t.ledgers[uid] = l
		if t.start != nil {
			t.start(l)
		}
	}
	return l
}

// drop removes the ledger of an object that was deleted.
func (t *term) drop(l *ledger) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ledgers, l.uid)
	t.approvals = slices.DeleteFunc(slices.Clone(t.approvals), func(a *v1alpha1.EvictionApproval) bool { return a.UID == l.uid })
}

// signal makes ledgers for new policies, and wakes the workers of all ledgers.
func (t *term) signal(policies []*eviction.Policy) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, policy := range policies {
		t.ledger(policy.UID, policy.Name, false)
	}
	for _, l := range t.ledgers {
		l.signal()
	}
}

// tripped returns the policies whose breakers are tripped.
func (t *term) tripped() []types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	var uids []types.UID
	for uid, l := range t.ledgers {
		if l.tripped() {
			uids = append(uids, uid)
		}
	}
	return uids
}

// ask answers for a pod that the breakers of policies bind, and to which approvals apply.
func (t *term) ask(pod types.UID, policies []*eviction.Policy, approvals []*v1alpha1.EvictionApproval, now time.Time) checks.Answer {
	t.mu.Lock()
	defer t.mu.Unlock()
	permit := &permit{term: t, pod: pod, at: now, reservations: map[*ledger]*reservation{}}
	var wait time.Duration
	late := map[*ledger]*counted{}
	for _, policy := range policies {
		l := t.ledger(policy.UID, policy.Name, false)
		if c := l.countedWithin(pod, now, policy.Breaker.Window); c != nil {
			if !c.covers(now) {
				late[l] = c
			}
			continue
		}
		l.policy = policy
		permit.breakers = append(permit.breakers, l)
		if !l.upToDate(policy) {
			wait = max(wait, l.await(now))
		}
	}
	if wait > 0 {
		return checks.Answer{Wait: wait}
	}
	ledgers, holder := t.ledgersFor(permit.breakers, approvals)
	if holder != nil {
		for _, l := range permit.breakers {
			if l != holder {
				l.heldByOthers[holder.uid]++
			}
		}
		return checks.Answer{Hold: checks.NewHold(checks.BreakerTripped, holder.policy)}
	}
	for l, c := range late {
		l.moving[c] = struct{}{}
		wait = max(wait, l.await(now))
	}
	for _, l := range ledgers {
		if usable, _ := l.reservations.room(now); usable == 0 {
			l.demand++
			wait = max(wait, l.await(now))
		}
	}
	if wait > 0 {
		return checks.Answer{Wait: wait}
	}
	for _, l := range ledgers {
		permit.reservations[l] = l.reservations.take(now)
	}
	return checks.Answer{Undo: func(_ checks.Now, end checks.End) { permit.settle(end == checks.Left) }}
}

// ledgersFor returns the ledgers that have to grant a pod: those of its breakers, or, if one of them is
// tripped, that of an approval of the taint alone, or those of approvals of the policies instead of
// tripped breakers. It returns the first breaker that holds the pod, if one does. The caller holds the
// mutex.
func (t *term) ledgersFor(breakers []*ledger, approvals []*v1alpha1.EvictionApproval) (ledgers []*ledger, holder *ledger) {
	if slices.ContainsFunc(breakers, (*ledger).tripped) {
		if l := t.approvalFor(approvals, ""); l != nil {
			return []*ledger{l}, nil
		}
	}
	for _, breaker := range breakers {
		l := breaker
		if l.tripped() {
			l = t.approvalFor(approvals, l.name)
		}
		if l == nil {
			return nil, breaker
		}
		ledgers = append(ledgers, l)
	}
	return ledgers, nil
}

// approvalFor returns the ledger of the oldest approval of a policy, or of a taint if the name is empty,
// that is not exhausted; nil for none. The caller holds the mutex.
func (t *term) approvalFor(approvals []*v1alpha1.EvictionApproval, policy string) *ledger {
	for _, a := range approvals {
		if a.Spec.EvictionPolicy != policy {
			continue
		}
		if l := t.ledger(a.UID, a.Name, true); !l.exhausted() {
			return l
		}
	}
	return nil
}

// countHeld returns an upper bound for the number of pods that a breaker holds; -1 while the count is
// incomplete. The evictor counts a pod for one of the breakers that hold it, after the pod has asked.
// The other breakers count it as well: otherwise they would be released, and trip again. A pod that
// asks twice counts twice, but no more pods than the evictor counts for the other breaker. If that one
// is released, its pods ask again, and the count is incomplete until they have.
func (t *term) countHeld(l *ledger, now time.Time, settled bool, byPolicy map[types.UID]int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !settled || !l.trip.Equal(l.state.tripped) { // Pods are held after the write that trips the breaker.
		l.incompleteAt, l.trip = now, l.state.tripped
	}
	count := byPolicy[l.uid]
	for uid, asked := range l.heldByOthers {
		if other := t.ledgers[uid]; other == nil || !other.tripped() {
			delete(l.heldByOthers, uid)
			l.incompleteAt = now
		}
		count += min(asked, byPolicy[uid])
	}
	if byPolicy == nil || now.Sub(l.incompleteAt) < fitsAfter {
		return -1
	}
	return count
}

// idle reports whether there is nothing to read or write for a ledger, and how long to pause then: pods
// that asked in vain do not have the ledger checked each time. It drops the ledger of an approval that
// is not listed any more.
func (t *term) idle(l *ledger, in *situation) (pause time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.stale(in) || l.next(in) != nil {
		return 0, false
	}
	if l.approval && len(l.reservations) == 0 && !isListed(t.approvals, l.uid) {
		delete(t.ledgers, l.uid)
	}
	return l.forgetDemand(), true
}

// observe takes over the state and the terms of an object that was read. The state is that of the last
// read or write, that of a lost write, which observe returns, or that of another writer. This replica
// cannot know what the other writer made of its grants, nor whether a lost write was carried out before: it
// drops its reservations, and forgets which pods it counted by which grant. observe returns the
// next write, or how long to pause if there is none.
func (t *term) observe(l *ledger, found state, spec *terms, in *situation) (lost, next *plan, foreign bool, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
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
func (t *term) finish(l *ledger, p *plan, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		l.commit(p)
		return
	}
	l.read = time.Time{}
	if act.Classify(err).Ambiguous() { // The write may be carried out all the same.
		l.lostWrites = append(l.lostWrites[max(len(l.lostWrites)+1-maxLost, 0):], *p)
	}
}

// schedule begins the pause of a worker. It returns the time from the end of the pause to the next
// check, and whether the ledger was dropped.
func (t *term) schedule(l *ledger, now time.Time, pause time.Duration) (next time.Duration, dropped bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.pause, next = now.Add(pause), idlePause
	if l.terms == nil || l.tripped() || len(l.reservations) > 0 {
		next = activePause
	}
	return next, t.ledgers[l.uid] != l
}
