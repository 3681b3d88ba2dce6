package history

import (
	"fmt"
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// neverWrong decides INV-2 and INV-3: that each pod that was evicted had to leave,
// at that time, by that method, by what was true at most Staleness before.
func neverWrong(x *index) []Violation {
	var found []Violation
	for _, e := range x.evictions {
		if v, ok := x.judge(e); ok {
			v.At, v.Objects = e.write.Forwarded, []string{e.uid()}
			found = append(found, v)
		}
	}
	return found
}

// judge returns what is wrong with one eviction.
func (x *index) judge(e *eviction) (Violation, bool) {
	since := e.write.Sent.Add(-x.Limits.Staleness)
	reasons := x.reasons(e.pod, since, e.revision)
	if len(reasons) == 0 {
		return Violation{Invariant: "INV-3", Message: fmt.Sprintf(
			"%s left, though nothing that it had to leave for was there within %s before", e.name(), x.Limits.Staleness,
		)}, true
	}
	now := x.serverTime(since, e.write.Forwarded)
	due := slices.DeleteFunc(slices.Clone(reasons), func(r reason) bool { return r.at.After(now.Add(x.Limits.Tolerance)) })
	if len(due) == 0 {
		at := earliest(reasons)
		return Violation{Invariant: "INV-2", Message: fmt.Sprintf(
			"%s left %s before its time, %s", e.name(), at.Sub(now).Round(time.Millisecond), at.UTC().Format("15:04:05"),
		)}, true
	}
	if message := x.against(e, due, now); message != "" {
		return Violation{Invariant: "INV-3", Message: message}, true
	}
	return Violation{}, false
}

// serverTime returns the latest that the API server's clock may have shown.
func (x *index) serverTime(since, at time.Time) time.Time {
	most, _ := x.ahead(since, at)
	return at.Add(most)
}

// against says which policy an eviction went against; empty for none. Where one was
// changed shortly before, it is left open which of its versions was known.
func (x *index) against(e *eviction, due []reason, now time.Time) string {
	policies, quiet := x.policiesAt(e.write.Sent.Add(-x.Limits.Policies), e.revision)
	if !quiet || len(policies) == 0 {
		return ""
	}
	var kept, otherwise string
	for i := range due {
		r := &due[i]
		policy := x.governing(policies, e.pod, r, e.revision)
		why := keeps(policy, e.pod)
		switch {
		case why != "":
			kept = fmt.Sprintf("%s left because of %s, though EvictionPolicy %s has it %s", e.name(), r, policy.Name, why)
		case !fits(policy, e.method, r, now.Add(x.Limits.Tolerance)):
			otherwise = fmt.Sprintf("%s left by %s because of %s, against EvictionPolicy %s", e.name(), e.method, r, policyName(policy))
		default:
			return ""
		}
	}
	if otherwise != "" {
		return otherwise
	}
	return kept
}

func policyName(policy *v1alpha1.EvictionPolicy) string {
	if policy == nil {
		return "(none)"
	}
	return policy.Name
}

// fits reports whether a method is the one by which a policy makes pods leave by now.
// One whose deleteAfter is about over may still be carried out as Evict. Where the Eviction API is to mark
// pods, it may be asked.
func fits(policy *v1alpha1.EvictionPolicy, method string, r *reason, now time.Time) bool {
	if methodOf(policy, r.at, now) == method {
		return true
	}
	return method == methodEvict && policy != nil &&
		(policy.Spec.Method == v1alpha1.EvictionMethodEvict || policy.Spec.Mark == v1alpha1.EvictionMarkByEvictionAPI)
}

// String is the reason in words.
func (r *reason) String() string {
	return fmt.Sprintf("taint %s=%s of %s %s", r.key, r.value, r.carrier.kind, r.carrier.name)
}
