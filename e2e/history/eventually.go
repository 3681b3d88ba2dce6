package history

import (
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// eventually decides INV-4: that in the end nobody is left who has to leave, unless
// it is held back for a reason, and that can be seen.
func eventually(x *index) []Violation {
	var found []Violation
	now := x.Ended.Add(-x.Limits.Settle)
	if len(x.Steps) > 0 {
		now = now.Add(x.Steps[len(x.Steps)-1].Offset)
	}
	policies, _ := x.policiesAt(x.Ended, math.MaxInt64)
	held := 0
	holding := map[string][]string{}
	for _, n := range x.named[kindPod] {
		v := x.last(n)
		if v == nil {
			continue
		}
		pod, _ := v.Object.(*corev1.Pod)
		due := x.dueAt(pod, now)
		if len(due) == 0 {
			continue
		}
		by, message := x.holder(policies, pod, due, now)
		if message != "" {
			found = append(found, Violation{Invariant: "INV-4", Message: message, At: x.Ended, Objects: []string{string(pod.UID)}})
			continue
		}
		held++
		if by != nil {
			holding[by.Name] = append(holding[by.Name], pod.Name)
		}
	}
	return append(found, x.unseen(policies, held, holding)...)
}

// dueAt returns the reasons because of which a pod that is left had to leave by now.
func (x *index) dueAt(pod *corev1.Pod, now time.Time) []reason {
	var due []reason
	for _, r := range x.reasons(pod, x.Ended, math.MaxInt64) {
		if !r.by.After(now) {
			due = append(due, r)
		}
	}
	return due
}

// holder returns the policy that holds a pod that is due; nil where it is only a
// budget that does. Nobody holds it who does not hold every one of its reasons.
func (x *index) holder(policies []*v1alpha1.EvictionPolicy, pod *corev1.Pod, due []reason, now time.Time) (*v1alpha1.EvictionPolicy, string) {
	var by *v1alpha1.EvictionPolicy
	for i := range due {
		r := &due[i]
		policy := x.governing(policies, pod, r, math.MaxInt64)
		switch {
		case keeps(policy, pod) != "":
			by = policy
		case x.tripped(policies, policy, pod, r) != nil:
			by = x.tripped(policies, policy, pod, r)
		case methodOf(policy, r.at, now) == methodEvict && x.budgeted(pod):
		default:
			return nil, fmt.Sprintf("%s/%s is left, though it had to leave at %s because of %s, and nothing holds it",
				pod.Namespace, pod.Name, r.by.UTC().Format("15:04:05"), r)
		}
	}
	return by, ""
}

// tripped returns a policy whose breaker holds an eviction: the governing one's, or
// that of one whose breaker is about all that it selects.
func (x *index) tripped(policies []*v1alpha1.EvictionPolicy, governing *v1alpha1.EvictionPolicy, pod *corev1.Pod, r *reason) *v1alpha1.EvictionPolicy {
	for _, policy := range policies {
		binds := policy == governing || policy.Spec.Breaker != nil && policy.Spec.Breaker.Scope == v1alpha1.LimitScopeSelected &&
			x.selects(policy, pod, r, math.MaxInt64)
		if binds && policy.Spec.Breaker != nil && policy.Status.Breaker != nil && policy.Status.Breaker.Tripped != nil {
			return policy
		}
	}
	return nil
}

// budgeted reports whether a PodDisruptionBudget keeps a pod from being evicted, or
// several do by being several.
func (x *index) budgeted(pod *corev1.Pod) bool {
	budgets := 0
	for _, n := range x.named[kindBudget] {
		v := x.last(n)
		if v == nil || n.namespace != pod.Namespace {
			continue
		}
		budget, _ := v.Object.(*policyv1.PodDisruptionBudget)
		if !matches(budget.Spec.Selector, pod.Labels, false) {
			continue
		}
		if budgets++; budgets > 1 || budget.Status.DisruptionsAllowed == 0 {
			return true
		}
	}
	return false
}

// unseen says what is held and cannot be seen to be.
func (x *index) unseen(policies []*v1alpha1.EvictionPolicy, held int, holding map[string][]string) []Violation {
	var found []Violation
	shown := 0
	for _, n := range x.Shown.Held {
		shown += n
	}
	if shown < held {
		found = append(found, Violation{Invariant: "INV-4", At: x.Ended, Message: fmt.Sprintf(
			"%d pods are held, and the metrics of the leader say %d: %v", held, shown, x.Shown.Held,
		)})
	}
	for _, policy := range policies {
		pods := holding[policy.Name]
		if len(pods) == 0 {
			continue
		}
		if policy.Status.Held == 0 || !meta.IsStatusConditionTrue(policy.Status.Conditions, "Held") {
			found = append(found, Violation{Invariant: "INV-4", At: x.Ended, Message: fmt.Sprintf(
				"EvictionPolicy %s holds %v, and its status says %d", policy.Name, pods, policy.Status.Held,
			), Objects: []string{string(policy.UID)}})
		}
	}
	return found
}
