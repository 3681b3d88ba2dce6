package toleration

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Judge decides whether the policies allow the tolerations that the request
// adds or changes. The findings are the same whatever order policies came in,
// and no more than MaxFindings.
//
// An error says that a policy could not be judged, and that nothing else refuses.
func (s *Set) Judge(ctx context.Context, in Input) (policy.Decision, error) {
	if s.Len() == 0 {
		return policy.Decide(nil), nil
	}
	h := newHearing(in)
	for i := range in.Asked {
		s.judgeList(ctx, &h, &in.Asked[i])
	}
	return h.decide()
}

// Concerns reports whether some policy guards a toleration that Judge would look at,
// whoever may have it. It looks at neither the namespace nor at what is inherited,
// so it can be asked before these are read.
func (s *Set) Concerns(in Input) bool {
	if s.Len() == 0 {
		return false
	}
	in.Inherited = nil
	h := newHearing(in)
	for i := range in.Asked {
		for _, t := range h.fresh(&in.Asked[i]) {
			for range s.guarding(&t) {
				return true
			}
		}
	}
	return false
}

// guarding yields the policies that guard t, in order.
func (s *Set) guarding(t *selector.Toleration) func(yield func(int, *selector.Selector) bool) {
	return func(yield func(int, *selector.Selector) bool) {
		candidates := s.index.Candidates(t)
		for position, ok := candidates.Next(); ok; position, ok = candidates.Next() {
			if guard := s.Policies[position].guardOf(t); guard != nil && !yield(position, guard) {
				return
			}
		}
	}
}

func (s *Set) judgeList(ctx context.Context, h *hearing, asked *Asked) {
	for i, t := range h.fresh(asked) {
		if err := ctx.Err(); err != nil {
			h.failed(err)
			return
		}
		for position, guard := range s.guarding(&t) {
			if h.report.done() {
				return
			}
			c := s.Policies[position]
			if h.report.cut && !c.denies {
				continue // nothing that it says would be heard
			}
			outlasted := c.outlasted(&t)
			q := question{position: position, policy: c, t: &t, asked: asked, i: i, outlasts: outlasted != nil}
			r := h.rule(ctx, &q)
			if r.allowed {
				continue
			}
			if !h.blames(c, &r) {
				h.report.unasked(c, &r, asked.Path)
				continue
			}
			if r.bounded {
				guard = outlasted
			}
			h.report.add(c, asked.Path, func() policy.Finding {
				return h.finding(ctx, &q, &r, guard, asked.Path.Index(i))
			})
		}
	}
}

// blames reports whether a ruling that does not allow is held against the user. It is
// not where nobody could say. A policy that cannot refuse does not stop a request by
// a fault either: it says that it could not be judged.
func (h *hearing) blames(c *compiled, r *ruling) bool {
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
func (h *hearing) decide() (policy.Decision, error) {
	if h.fault != nil && !h.report.denied {
		return policy.Decision{}, h.fault
	}
	return policy.Decide(h.report.findings), nil
}

// GuardsNode reports whether some policy guards a taint of a node that keeps pods
// off.
func (s *Set) GuardsNode(taints []corev1.Taint) bool {
	if s.Len() == 0 {
		return false
	}
	for i := range taints {
		for range s.guardingTaint(&taints[i]) {
			return true
		}
	}
	return false
}
