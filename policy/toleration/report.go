package toleration

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// MaxFindings bounds the findings of a decision. One wildcard comes under every
// policy, and a pod may have any number of tolerations (AV-29): the answer must
// stay readable, and small.
const MaxFindings = 20

// report collects findings up to the bound, but always one that denies where
// there is one, so that the bound never changes the verdict.
type report struct {
	findings []policy.Finding
	denied   bool
	cut      bool
	// curtailed says that RBAC was not asked about all tolerations, as the findings tell.
	curtailed bool
}

// done reports whether nothing that follows could change the decision.
func (r *report) done() bool { return r.denied && r.cut }

// add files what c has against something in the list at path. The finding is made
// only where it is kept.
func (r *report) add(c *compiled, path *field.Path, finding func() policy.Finding) {
	switch {
	case len(r.findings) < MaxFindings-2 || c.denies && !r.denied:
		r.findings = append(r.findings, finding())
		r.denied = r.denied || c.denies
	case !r.cut:
		r.findings = append(r.findings, policy.Finding{
			Reason:  policy.MoreFindings,
			Policy:  policyRef(c),
			Actions: slices.Clone(c.actions),
			Field:   policy.Short(path.String(), maxField),
			Problem: "more tolerations violate this policy or others than are listed",
		})
		r.cut = true
	}
}

// unasked files that RBAC was not asked about more tolerations of the list at path, if that is
// so, because the request is refused already.
func (r *report) unasked(c *compiled, why *ruling, path *field.Path) {
	if r.curtailed || !r.denied || len(r.findings) >= MaxFindings-2 || !errors.Is(why.fault, errNotAsked) {
		return
	}
	r.curtailed = true
	r.findings = append(r.findings, policy.Finding{
		Reason:  policy.MoreFindings,
		Policy:  policyRef(c),
		Actions: slices.Clone(c.actions),
		Field:   policy.Short(path.String(), maxField),
		Problem: "RBAC was not asked about more tolerations, because the request is refused already: they may violate this policy or others",
	})
}

func (h *hearing) finding(ctx context.Context, q *question, r *ruling, guard *selector.Selector, path *field.Path) policy.Finding {
	c := q.policy
	f := h.blank(c, path)
	f.Reason = policy.TolerationNotGranted
	f.Value = describe(q.t)
	problem := "could tolerate " + guard.String() + ", which is not granted to " + c.whom(&h.in)
	if r.bounded {
		f.Reason = policy.TolerationTooLong
		f.Remedy = "allowed is " + atMost(r.limit)
		if q.t.Effect == "" && !c.judgesByExpression() {
			// The time of a grant bounds NoExecute alone, and tolerationSeconds may stand beside no
			// other effect.
			f.Remedy += ", and an entry of its own for effect " + string(corev1.TaintEffectNoSchedule) + " without"
		}
		problem = "could tolerate " + guard.String() + " for longer than is granted to " + c.whom(&h.in)
	}
	return h.finish(f, c, r, problem, h.message(ctx, q))
}

// blank returns a finding of a policy about a field.
func (h *hearing) blank(c *compiled, path *field.Path) policy.Finding {
	return policy.Finding{
		Policy:  policyRef(c),
		Actions: slices.Clone(c.actions),
		Field:   policy.Short(path.String(), maxField),
		Remedy:  c.remedy,
	}
}

// finish puts the problem into a finding, with what failed on the way and the message
// of the policy, as long as there is room.
func (h *hearing) finish(f policy.Finding, c *compiled, r *ruling, problem, message string) policy.Finding {
	if len(c.problems) > 0 {
		f.Remedy += " (the policy is not fully in force, see its status)"
	}
	if len(r.notes) > 0 {
		problem += " (" + policy.ShortList(r.notes, "; ", maxNote) + ")"
	}
	f.Problem = policy.Short(problem, maxFinding-len(f.String()))
	const separator = ": "
	if room := maxFinding - len(f.String()) - len(separator); message != "" && room >= minMessage {
		f.Problem += separator + policy.Short(message, room)
	}
	return f
}

// message returns what the policy says of a toleration in words of its own. An
// expression that gives none, or not one line, leaves it to the plain message.
func (h *hearing) message(ctx context.Context, q *question) string {
	c := q.policy
	if c.expression == nil || h.in.Review == nil {
		return c.message
	}
	said, err := c.expression.Text(ctx, h.in.Review.Aside(), h.judged(q))
	said = strings.TrimSpace(said)
	if err != nil || said == "" || strings.ContainsAny(said, "\n\r") {
		return c.message
	}
	return said
}

// judgesByExpression reports whether a grant may ask for the effect of a toleration.
func (c *compiled) judgesByExpression() bool {
	return slices.ContainsFunc(c.grants, func(g grant) bool { return g.expression != nil })
}

// whom says to whom a policy with these grants could have granted something.
func (c *compiled) whom(in *Input) string {
	namespace := "namespace " + policy.Short(in.Namespace, policy.Value)
	if !c.personal || in.RequesterUnknown {
		return namespace
	}
	return "user " + policy.Short(in.User.Username, policy.MaxKeyLength) + " in " + namespace
}

// minMessage is the room below which a message of the policy would be cut to
// something that says nothing.
const minMessage = 16

func policyRef(c *compiled) string { return policy.Ref("TolerationPolicy", c.name) }
