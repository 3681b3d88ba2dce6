package history

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// margin is by how much a window is taken to be shorter, for what is under way at
// its ends.
const margin = 2 * time.Second

// bounded decides INV-5: that within no window more pods left than a breaker allows,
// and approvals beside it.
func bounded(x *index) []Violation {
	var found []Violation
	released := x.approved()
	for _, n := range x.named[kindPolicy] {
		for _, life := range x.lives(n) {
			found = append(found, x.overrun(life, released)...)
		}
	}
	return found
}

// departure is one pod that left under a breaker. Its time is what has passed by this
// machine and by how much the clock of the API server was set forward meanwhile: a
// window that it jumps over may be over for a leader that comes after. That it is set
// back makes no window longer.
type departure struct {
	at       time.Time
	eviction *eviction
}

// life is a policy from one creation to its deletion.
type life struct {
	versions []*Version
	from, to int64
}

// lives splits the versions under a name into policies.
func (x *index) lives(n name) []life {
	var lives []life
	chain := x.chains[n]
	for i, v := range chain {
		anew := i == 0 || chain[i-1].Gone
		if anew {
			lives = append(lives, life{from: v.Revision})
		}
		current := &lives[len(lives)-1]
		if current.versions, current.to = append(current.versions, v), v.Revision; i+1 < len(chain) {
			current.to = chain[i+1].Revision - 1
		} else if !v.Gone {
			current.to = 1 << 62
		}
	}
	return lives
}

// approved returns how many pods approvals let through that breakers held.
func (x *index) approved() int {
	released := 0
	for _, n := range x.named[kindApproval] {
		most := 0
		for _, v := range x.chains[n] {
			approval, _ := v.Object.(*v1alpha1.EvictionApproval)
			most = max(most, int(approval.Status.Released))
		}
		released += most
	}
	return released
}

// overrun says where more pods left than the breaker of a policy allows.
func (x *index) overrun(l life, released int) []Violation {
	limit, window, ok := x.allowed(l)
	if !ok {
		return nil
	}
	left := x.departures(l)
	begin := 0
	for i, d := range left {
		for d.at.Sub(left[begin].at) >= window-margin {
			begin++
		}
		if n := i - begin + 1; n > limit+released {
			policy := l.versions[len(l.versions)-1].Object
			v := Violation{Invariant: "INV-5", At: d.eviction.write.Forwarded, Message: fmt.Sprintf(
				"%d pods left within %s under the breaker of EvictionPolicy %s, which allows %d, and approvals %d",
				n, d.at.Sub(left[begin].at).Round(time.Millisecond), policy.GetName(), limit, released,
			)}
			for _, one := range left[begin : i+1] {
				v.Objects = append(v.Objects, one.eviction.uid())
			}
			return []Violation{v} // one is enough of each
		}
	}
	return nil
}

// allowed returns the most that a breaker ever allowed, and its shortest window;
// false where it was ever without one.
func (x *index) allowed(l life) (limit int, window time.Duration, ok bool) {
	for _, v := range l.versions {
		policy, _ := v.Object.(*v1alpha1.EvictionPolicy)
		b := policy.Spec.Breaker
		if b == nil {
			return 0, 0, false
		}
		most := 1 << 30
		if b.MaxPods != nil {
			most = int(*b.MaxPods)
		}
		if b.MaxPercent != nil {
			most = min(most, max(1, x.mostPods()*int(*b.MaxPercent)/100))
		}
		limit = max(limit, most)
		if d := b.Window.Duration; window == 0 || d < window {
			window = d
		}
	}
	return limit, window, window > 0
}

// mostPods is how many pods there ever were under one name or another: no fewer than
// lived and had gone within a window at any time.
func (x *index) mostPods() int {
	uids := map[string]bool{}
	for _, n := range x.named[kindPod] {
		for _, v := range x.chains[n] {
			uids[string(v.Object.GetUID())] = true
		}
	}
	return len(uids)
}

// departures returns the evictions that counted for a policy without a doubt, in
// their order.
func (x *index) departures(l life) []departure {
	var left []departure
	for _, e := range x.evictions {
		if e.revision < l.from || e.revision > l.to || !x.counts(l, e) {
			continue
		}
		at := e.write.Forwarded
		left = append(left, departure{at: at.Add(x.forward(at)), eviction: e})
	}
	return left
}

// counts reports whether an eviction counts for a policy whatever it was because of.
func (x *index) counts(l life, e *eviction) bool {
	since := e.write.Sent.Add(-x.Limits.Staleness)
	policies, quiet := x.policiesAt(e.write.Sent.Add(-x.Limits.Policies), e.revision)
	if !quiet {
		return false
	}
	reasons := x.reasons(e.pod, since, e.revision)
	now := x.serverTime(since, e.write.Forwarded).Add(x.Limits.Tolerance)
	uid, some := l.versions[0].Object.GetUID(), false
	for i := range reasons {
		r := &reasons[i]
		governing := x.governing(policies, e.pod, r, e.revision)
		if r.at.After(now) || keeps(governing, e.pod) != "" {
			continue
		}
		if !x.binds(policies, governing, e.pod, r, e.revision, string(uid)) {
			return false
		}
		some = true
	}
	return some
}

// binds reports whether the breaker of the policy with a UID counts an eviction
// because of a reason.
func (x *index) binds(
	policies []*v1alpha1.EvictionPolicy, governing *v1alpha1.EvictionPolicy, pod *corev1.Pod, r *reason, revision int64, uid string,
) bool {
	for _, policy := range policies {
		if string(policy.UID) != uid || policy.Spec.Breaker == nil {
			continue
		}
		return policy == governing ||
			policy.Spec.Breaker.Scope == v1alpha1.LimitScopeSelected && x.selects(policy, pod, r, revision)
	}
	return false
}
