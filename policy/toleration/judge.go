package toleration

import (
	"context"
	"errors"
	"iter"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Judge decides whether the policies allow the tolerations that the request
// adds or changes. The findings are the same whatever order policies came in,
// and no more than policy.MaxFindings.
//
// An error says that a policy could not be judged, and that nothing else refuses.
func (s *Set) Judge(ctx context.Context, in Input) (policy.Decision, error) {
	if s.Len() == 0 {
		return policy.Decide(nil), nil
	}
	if in.NamespaceLabels == nil && s.NeedsNamespace(in) {
		return policy.Decision{}, errNoNamespace
	}
	h := newReview(in)
	for i := range in.Asked {
		s.judgeList(ctx, &h, &in.Asked[i])
	}
	return h.decide()
}

// Concerns reports whether a policy guards any toleration that Judge would evaluate, with or
// without a grant for it. It reads neither the namespace nor inherited tolerations, so it can
// be called before these are read.
func (s *Set) Concerns(in Input) bool {
	return s.Len() > 0 && s.guardsAny(in, false)
}

// NeedsNamespace reports whether Judge can read the labels of the namespace or namespaceObject:
// whether a policy that guards a toleration which Judge would evaluate has a grant with a
// namespaceSelector, or an expression with namespaceObject. It can be called whenever Concerns
// can.
func (s *Set) NeedsNamespace(in Input) bool {
	return s.Len() > 0 && s.namespaced && s.guardsAny(in, true)
}

// NodeNeedsNamespace is NeedsNamespace for JudgeNode.
func (s *Set) NodeNeedsNamespace(taints []corev1.Taint) bool {
	return s.Len() > 0 && s.namespaced && s.guardsAnyTaint(taints, true)
}

// errNoNamespace is the error of an input that needs the namespace, and comes without it.
var errNoNamespace = errors.New("the policies select by the namespace, which was not read")

// guardsAny reports whether a policy, or one that is namespaced, guards a toleration that Judge would
// evaluate. It does not read inherited tolerations.
func (s *Set) guardsAny(in Input, namespaced bool) bool {
	in.Inherited = nil
	h := newReview(in)
	for i := range in.Asked {
		for _, t := range h.fresh(&in.Asked[i]) {
			if s.guards(&t, namespaced) {
				return true
			}
		}
	}
	return false
}

// guards reports whether a policy, or one that is namespaced, guards t.
func (s *Set) guards(t *selector.Toleration, namespaced bool) bool {
	for c := range s.guarding(t) {
		if c.namespaced || !namespaced {
			return true
		}
	}
	return false
}

// guarding yields the policies that guard t, in order, each with the first guard that t comes under.
func (s *Set) guarding(t *selector.Toleration) iter.Seq2[*compiled, *selector.Selector] {
	return func(yield func(*compiled, *selector.Selector) bool) {
		s.index.Each(t, func(position int) bool {
			c := s.Policies[position]
			for i := range c.guards {
				if c.guards[i].Could(t) {
					return yield(c, &c.guards[i])
				}
			}
			return true
		})
	}
}

func (s *Set) judgeList(ctx context.Context, h *review, asked *Asked) {
	for i, t := range h.fresh(asked) {
		if err := ctx.Err(); err != nil {
			h.failed(err)
			return
		}
		for c, guard := range s.guarding(&t) {
			if h.report.Done() {
				return
			}
			if h.report.Cut && !c.denies {
				continue // its finding would not be listed
			}
			outlasted := c.outlasted(&t)
			q := question{policy: c, t: &t, asked: asked, i: i, outlasts: outlasted != nil}
			r := h.judge(ctx, &q)
			if r.allowed {
				continue
			}
			if !h.violated(c, &r) {
				h.unasked(c, &r, asked.Path)
				continue
			}
			if r.bounded {
				guard = outlasted
			}
			h.add(c, asked.Path, func() policy.Finding {
				return h.finding(ctx, &q, &r, guard, asked.Path.Index(i))
			})
		}
	}
}

// violated reports whether an outcome that does not allow is a violation. With a fault it is
// none. A policy that cannot refuse does not stop a request by a fault either: its finding
// says that it could not be judged.
func (h *review) violated(c *compiled, r *outcome) bool {
	if r.fault == nil {
		return true
	}
	if c.denies {
		h.failed(r.fault)
		return false
	}
	r.note("not all of the policy could be judged")
	return true
}

// decide returns the decision. What is refused anyway is refused whether or not all
// policies could be judged.
func (h *review) decide() (policy.Decision, error) {
	if h.fault != nil && !h.report.Denied {
		return policy.Decision{}, h.fault
	}
	return policy.Decide(h.report.Findings), nil
}

// GuardsNode reports whether some policy guards a taint of a node that keeps pods
// off.
func (s *Set) GuardsNode(taints []corev1.Taint) bool {
	return s.Len() > 0 && s.guardsAnyTaint(taints, false)
}

// guardsAnyTaint reports whether a policy, or one that is namespaced, guards a taint of a node that
// keeps pods off.
func (s *Set) guardsAnyTaint(taints []corev1.Taint, namespaced bool) bool {
	for i := range taints {
		for c := range s.guardingTaint(&taints[i]) {
			if c.namespaced || !namespaced {
				return true
			}
		}
	}
	return false
}

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
	if in.NamespaceLabels == nil && s.NodeNeedsNamespace(taints) {
		return policy.Decision{}, errNoNamespace
	}
	h := newReview(in)
	for i := range taints {
		for c, guard := range s.guardingTaint(&taints[i]) {
			if h.report.Done() {
				return h.decide()
			}
			if err := ctx.Err(); err != nil {
				h.failed(err)
				return h.decide()
			}
			h.judgeNodeTaint(ctx, &nodeTaint{policy: c, guard: guard, taint: &taints[i]})
		}
	}
	return h.decide()
}

// nodeTaint is a taint of the node that a pod is put on, which a policy guards.
type nodeTaint struct {
	policy *compiled
	guard  *selector.Selector
	taint  *corev1.Taint
}

// guardingTaint yields the policies that guard a taint of a node, in order; none for
// a taint that does not keep pods off.
func (s *Set) guardingTaint(taint *corev1.Taint) iter.Seq2[*compiled, *selector.Selector] {
	return func(yield func(*compiled, *selector.Selector) bool) {
		if taint.Effect != corev1.TaintEffectNoSchedule && taint.Effect != corev1.TaintEffectNoExecute {
			return
		}
		t := selector.OfTaint(taint)
		s.index.Each(&t, func(position int) bool {
			c := s.Policies[position]
			guard := selector.Selecting(c.guards, v1alpha1.TaintTargetNode, "", taint.Key, taint.Value, taint.Effect)
			return guard == nil || yield(c, guard)
		})
	}
}

// judgeNodeTaint judges the tolerations of a pod that tolerate the taint. One that the policy
// allows is enough. Where none tolerates it, grants do not matter, and conditions of the policy that do
// not hold are enough.
func (h *review) judgeNodeTaint(ctx context.Context, p *nodeTaint) {
	var refused *outcome
	var asked Asked
	if len(h.in.Asked) > 0 {
		asked = h.in.Asked[0]
	}
	for i := range asked.New {
		t := selector.OfPod(&asked.New[i])
		if !t.Tolerates(p.taint) {
			continue
		}
		if h.isSettled(&t) {
			return
		}
		r := h.judge(ctx, &question{policy: p.policy, t: &t, asked: &asked, i: i, outlasts: p.taint.Effect == corev1.TaintEffectNoExecute})
		if r.allowed {
			return
		}
		if refused == nil || (refused.fault == nil && r.fault != nil) {
			refused = &r
		}
	}
	reason := policy.PassNotGranted
	if refused == nil {
		c := h.condition(ctx, p.policy)
		if !c.holds {
			return
		}
		refused, reason = &outcome{fault: c.fault}, policy.TaintNotTolerated
		refused.note(c.note)
	}
	if h.violated(p.policy, refused) {
		h.add(p.policy, h.in.Path, func() policy.Finding { return h.nodeTaintFinding(p, refused, reason) })
	}
}

func (h *review) nodeTaintFinding(p *nodeTaint, r *outcome, reason policy.Reason) policy.Finding {
	f := blank(p.policy, h.in.Path)
	f.Reason = reason
	f.Value = "taint " + policy.Short(p.taint.ToString(), policy.MaxKeyLength+policy.Value)
	problem := "the node has a taint that is guarded (" + p.guard.String() + ")"
	switch {
	case reason == policy.TaintNotTolerated:
		problem += " and that the pod does not tolerate"
		f.Remedy = "leave it to the scheduler to find a node, or tolerate the taint: " + p.policy.remedy
	case r.bounded:
		problem += ", and the pod tolerates it for longer than is granted to " + p.policy.whom(&h.in)
		f.Remedy = "allowed is " + atMost(r.limit)
	default:
		problem += ", and to tolerate it is not granted to " + p.policy.whom(&h.in)
	}
	return h.finish(f, p.policy, r, problem, p.policy.message)
}
