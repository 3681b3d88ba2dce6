package toleration

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// JudgeNode decides whether a pod may be put on a node past the scheduler: every
// guarded taint that keeps pods off must be tolerated by the pod, and that toleration
// granted. The tolerations are those of the first list of the input, old ones too:
// that the pod got them once does not say that it may have them.
//
// An error says that a policy could not be judged, and that nothing else refuses.
func (s *Set) JudgeNode(ctx context.Context, in Input, taints []corev1.Taint) (policy.Decision, error) {
	if s.Len() == 0 {
		return policy.Decide(nil), nil
	}
	h := newHearing(in)
	var tolerations Asked
	if len(in.Asked) > 0 {
		tolerations.New = in.Asked[0].New
	}
	for i := range taints {
		for position, guard := range s.guardingTaint(&taints[i]) {
			if h.report.done() {
				return h.decide()
			}
			if err := ctx.Err(); err != nil {
				h.failed(err)
				return h.decide()
			}
			p := pass{position: position, policy: s.Policies[position], guard: guard, taint: &taints[i]}
			h.judgePass(ctx, &p, &tolerations)
		}
	}
	return h.decide()
}

// pass is a taint of a node that a pod is put past, before one policy.
type pass struct {
	position int
	policy   *compiled
	guard    *selector.Selector
	taint    *corev1.Taint
}

// guardingTaint yields the policies that guard a taint of a node, in order; none for
// a taint that does not keep pods off.
func (s *Set) guardingTaint(taint *corev1.Taint) func(yield func(int, *selector.Selector) bool) {
	return func(yield func(int, *selector.Selector) bool) {
		if taint.Effect != corev1.TaintEffectNoSchedule && taint.Effect != corev1.TaintEffectNoExecute {
			return
		}
		t := selector.OfTaint(taint)
		candidates := s.index.Candidates(&t)
		for position, ok := candidates.Next(); ok; position, ok = candidates.Next() {
			guard := s.Policies[position].selecting(taint)
			if guard != nil && !yield(position, guard) {
				return
			}
		}
	}
}

// selecting returns the first guard that selects a taint of a node, or nil.
func (c *compiled) selecting(taint *corev1.Taint) *selector.Selector {
	for i := range c.guards {
		if c.guards[i].Selects(v1alpha1.TaintTargetNode, "", taint.Key, taint.Value, taint.Effect) {
			return &c.guards[i]
		}
	}
	return nil
}

// judgePass holds the tolerations of a pod that tolerate the taint against the
// policy. One that may be there is enough.
func (h *hearing) judgePass(ctx context.Context, p *pass, tolerations *Asked) {
	var refused *ruling
	for i := range tolerations.New {
		t := selector.OfPod(&tolerations.New[i])
		if !t.Tolerates(p.taint) {
			continue
		}
		if h.isSettled(&t) {
			return
		}
		q := question{
			position: p.position, policy: p.policy, t: &t, asked: tolerations, i: i,
			outlasts: p.taint.Effect == corev1.TaintEffectNoExecute,
		}
		r := h.rule(ctx, &q)
		if r.allowed {
			return
		}
		if refused == nil || (refused.fault == nil && r.fault != nil) {
			refused = &r
		}
	}
	if refused == nil {
		h.notTolerated(ctx, p)
		return
	}
	if h.blames(p.policy, refused) {
		h.report.add(p.policy, h.in.Path, func() policy.Finding { return h.passFinding(p, refused, policy.PassNotGranted) })
	}
}

// notTolerated files a taint that no toleration of the pod tolerates. Grants do not
// matter then, only whether the policy looks at the request.
func (h *hearing) notTolerated(ctx context.Context, p *pass) {
	c := h.condition(ctx, p.position, p.policy)
	if !c.holds {
		return
	}
	r := ruling{fault: c.fault}
	r.note(c.note)
	if h.blames(p.policy, &r) {
		h.report.add(p.policy, h.in.Path, func() policy.Finding { return h.passFinding(p, &r, policy.TaintNotTolerated) })
	}
}

func (h *hearing) passFinding(p *pass, r *ruling, reason policy.Reason) policy.Finding {
	f := h.blank(p.policy, h.in.Path)
	f.Reason = reason
	f.Value = "taint " + policy.Short(p.taint.ToString(), policy.MaxKeyLength+policy.Value)
	problem := "the node has a taint that is guarded (" + p.guard.String() + ") and that the pod does not tolerate"
	switch {
	case reason == policy.TaintNotTolerated:
		f.Remedy = "leave it to the scheduler to find a node, or tolerate the taint: " + p.policy.remedy
	case r.bounded:
		problem = "the node has a taint that is guarded (" + p.guard.String() + "), and the pod tolerates it for longer than is granted to " + p.policy.whom(&h.in)
		f.Remedy = "allowed is " + atMost(r.limit)
	default:
		problem = "the node has a taint that is guarded (" + p.guard.String() + "), and to tolerate it is not granted to " + p.policy.whom(&h.in)
	}
	return h.finish(f, p.policy, r, problem, p.policy.message)
}
