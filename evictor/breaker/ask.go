package breaker

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// Ask is a Check: it lets a pod go on if all breakers that bind it allow that. If one does not, none counts the
// pod. An approval of a taint releases pods from all breakers, none of which counts them. An approval of a policy
// releases pods from the breaker of that policy alone. A breaker that has counted the pod within its window, after
// an attempt that may have worked, needs no room for it and does not hold it, unless the limit was lowered below
// the number of pods that the breaker has counted.
func (k *Keeper) Ask(_ checks.Now, of *checks.Eviction) checks.Answer {
	policies := of.Treatment.Breakers
	if len(policies) == 0 {
		return checks.Answer{}
	}
	approvals, now := k.validApprovals(&of.Taint), k.options.Local.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ledgers == nil {
		return checks.Answer{Wait: leadingPause}
	}
	return k.ask(&permit{pod: of.Pod.UID, at: now, reservations: map[*ledger]*reservation{}}, policies, approvals)
}

// permit allows one pod to be evicted, in one attempt that ends within the Timeout of the Keeper.
type permit struct {
	// pod is the pod that the breakers count, as of at.
	pod      types.UID
	at       time.Time
	breakers []*ledger
	// reservations are those of the breakers or approvals that grant it.
	reservations map[*ledger]*reservation
}

// ask answers for a pod that the breakers of policies bind, and to which approvals apply. The caller holds the
// mutex.
func (k *Keeper) ask(p *permit, policies []*eviction.Policy, approvals []*v1alpha1.EvictionApproval) checks.Answer {
	var wait time.Duration
	var ledgers []*ledger
	late := map[*ledger]*counted{}
	for _, policy := range policies {
		l := k.ledger(policy.UID, policy.Name, false)
		if c := l.countedWithin(p.pod, p.at, policy.Breaker.Window); c != nil {
			if !c.covers(p.at) {
				late[l] = c
			}
			continue
		}
		l.policy = policy
		p.breakers = append(p.breakers, l)
		if !l.upToDate(policy) {
			wait = max(wait, k.await(l, p.at))
		}
	}
	if wait == 0 {
		var holder *ledger
		if ledgers, holder = k.ledgersFor(p.breakers, approvals); holder != nil {
			hold := checks.NewHold(checks.BreakerTripped, holder.policy)
			// The hold names all breakers that have not counted the pod: otherwise the others would be
			// released, and trip again.
			for _, l := range p.breakers {
				hold.Breakers = append(hold.Breakers, l.uid)
			}
			return checks.Answer{Hold: hold}
		}
		for l, c := range late {
			l.moving[c] = struct{}{}
			wait = max(wait, k.await(l, p.at))
		}
		for _, l := range ledgers {
			if usable, _ := l.reservations.room(p.at); usable == 0 {
				l.demand++
				wait = max(wait, k.await(l, p.at))
			}
		}
	}
	if wait > 0 {
		// The pod is not held then, so that the breakers do not know for a while how many pods they hold.
		for _, l := range p.breakers {
			l.incompleteAt = p.at
		}
		return checks.Answer{Wait: wait}
	}
	for _, l := range ledgers {
		p.reservations[l] = l.reservations.take(p.at)
	}
	return checks.Answer{Undo: func(_ checks.Now, end checks.End) { k.settle(p, end == checks.Left) }}
}

// await has a ledger checked, and returns how long a pod has to wait. The caller holds the mutex.
func (k *Keeper) await(l *ledger, now time.Time) time.Duration {
	l.waiting++
	pause := max(l.pause.Sub(now), 0)
	k.queue.AddAfter(pause, l.uid)
	return pause + min(writeTakes+time.Duration(l.waiting)*spread, longestWait)
}

// settle ends an attempt. Evicted is false only if it is certain that the attempt evicted no pod: an attempt without an
// answer counts as an eviction. The room of an attempt that evicted no pod is given back. An attempt that is not
// settled, or settled after its term of leadership, counts as an eviction.
func (k *Keeper) settle(p *permit, evicted bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range p.reservations {
		r.open--
		if !evicted {
			r.room++
		}
	}
	if !evicted {
		return
	}
	for _, l := range p.breakers {
		// A reservation that was dropped meanwhile does not say which grant counts the pod.
		if by := p.reservations[l]; by == nil || slices.Contains(l.reservations, by) {
			l.counted[p.pod] = &counted{at: p.at, by: by}
		}
	}
}

// ledgersFor returns the ledgers that have to grant a pod: those of its breakers, or, if one of them is
// tripped, that of an approval of the taint alone, or those of approvals of the policies instead of
// tripped breakers. It returns the first breaker that holds the pod, if one does. The caller holds the
// mutex.
func (k *Keeper) ledgersFor(breakers []*ledger, approvals []*v1alpha1.EvictionApproval) (ledgers []*ledger, holder *ledger) {
	if slices.ContainsFunc(breakers, (*ledger).tripped) {
		if l := k.approvalFor(approvals, ""); l != nil {
			return []*ledger{l}, nil
		}
	}
	for _, breaker := range breakers {
		l := breaker
		if l.tripped() {
			l = k.approvalFor(approvals, l.name)
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
func (k *Keeper) approvalFor(approvals []*v1alpha1.EvictionApproval, policy string) *ledger {
	for _, a := range approvals {
		if a.Spec.EvictionPolicy != policy {
			continue
		}
		l := k.ledger(a.UID, a.Name, true)
		if _, unused := l.reservations.room(time.Time{}); l.terms == nil || len(l.lostWrites)+unused > 0 ||
			l.state.pods() < int(*l.terms.limit.MaxPods) {
			return l
		}
	}
	return nil
}
