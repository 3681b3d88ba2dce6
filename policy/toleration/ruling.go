package toleration

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// question is one toleration before one policy.
type question struct {
	position int // of the policy
	policy   *compiled
	t        *selector.Toleration
	asked    *Asked // holds the toleration at i
	i        int
	// outlasts says that the toleration could outlast a guarded NoExecute taint.
	outlasts bool
}

// ruling is what a policy says to a toleration that it guards.
type ruling struct {
	allowed bool
	// bounded says that a grant is there, but for no longer than limit seconds.
	bounded bool
	limit   int64
	// notes say what failed on the way, for the user.
	notes []string
	// fault says why it is not known whether a grant is there.
	fault error
}

var errNoRequest = errors.New("there is no request to ask about")

// maxRefusals is how many questions RBAC may answer with no before it is asked no more: the
// requester and the service account, of two keys. The user chooses the keys and the account, and
// could otherwise ask any number of questions by one request. What RBAC allows is not counted:
// a pod may need as many keys as are granted to it.
const maxRefusals = 4

// errNotAsked is why RBAC is not asked about a key any more.
var errNotAsked = fmt.Errorf("RBAC is asked no more after it did not grant %d permissions", maxRefusals)

// rule asks the grants of a policy: first what costs nothing, then whether the policy
// looks at the request at all, then the others.
func (h *hearing) rule(ctx context.Context, q *question) ruling {
	var r ruling
	for i := range q.policy.grants {
		g := &q.policy.grants[i]
		if g.cost() > 0 {
			break
		}
		if g.admits(&h.in) && r.take(g, q) {
			return r
		}
	}
	c := h.condition(ctx, q.position, q.policy)
	if !c.holds {
		return ruling{allowed: true}
	}
	r.fault = c.fault
	r.note(c.note)
	if q.policy.dynamic {
		h.ask(ctx, q, &r)
	}
	return r
}

// take adds what a grant gives and reports whether that is enough.
func (r *ruling) take(g *grant, q *question) bool {
	if g.fits(q.t, q.outlasts) {
		*r = ruling{allowed: true}
		return true
	}
	if !r.bounded {
		r.bounded, r.limit = true, *g.limit
	}
	r.limit = max(r.limit, *g.limit)
	return false
}

func (r *ruling) note(text string) {
	if text != "" {
		r.notes = append(r.notes, text)
	}
}

// ask asks the grants that have to be asked. A grant that could not be asked is a
// fault only where it would have been enough.
func (h *hearing) ask(ctx context.Context, q *question, r *ruling) {
	for i := range q.policy.grants {
		g := &q.policy.grants[i]
		if g.cost() == 0 || !g.admits(&h.in) {
			continue
		}
		granted, err := h.grants(ctx, g, q)
		var failed *cel.FailedError
		switch {
		case errors.As(err, &failed):
			r.note(fmt.Sprintf("the expression of grants[%d] failed: %s", g.position, policy.Short(failed.Problem, maxNote)))
		case err != nil && g.fits(q.t, q.outlasts):
			r.fault = errors.Join(r.fault, fmt.Errorf("ask grants[%d] of TolerationPolicy %s: %w", g.position, q.policy.name, err))
		case err == nil && granted && r.take(g, q):
			return
		}
	}
}

// grants asks what of a grant has to be asked.
func (h *hearing) grants(ctx context.Context, g *grant, q *question) (bool, error) {
	if g.rbac && !h.in.RequesterUnknown {
		if may, err := h.may(ctx, q.t.Key); err != nil || !may {
			return false, err
		}
	}
	if g.expression == nil {
		return true, nil
	}
	uses := g.expression.Uses()
	if (uses.Requester && h.in.RequesterUnknown) || (h.in.objectUnknown && unknown(uses)) {
		return true, nil
	}
	if h.in.Review == nil {
		return false, errNoRequest
	}
	return g.expression.Bool(ctx, h.review(q.policy), h.judged(q))
}

// review is what expressions of a policy are evaluated in. A policy that cannot refuse
// takes nothing of what those may cost that can.
func (h *hearing) review(c *compiled) *cel.Review {
	if c.denies {
		return h.in.Review
	}
	return h.in.Review.Aside()
}

func (h *hearing) judged(q *question) *cel.Judged {
	current := q.asked.current()
	return &cel.Judged{Toleration: current.written(q.i), Pod: h.in.Pod, Claim: h.in.Claim}
}

// may reports whether the requester, or the pod's service account, may tolerate the
// taints of a key by RBAC.
func (h *hearing) may(ctx context.Context, key string) (bool, error) {
	if may, ok := h.answers[key]; ok {
		return may, nil
	}
	if h.away != nil {
		return false, h.away
	}
	if h.report.denied {
		// The answer could not change the verdict.
		return false, errNotAsked
	}
	may, err := h.askRBAC(ctx, key)
	if err != nil {
		h.away = err
		return false, err
	}
	if h.answers == nil {
		h.answers = map[string]bool{}
	}
	h.answers[key] = may
	return may, nil
}

func (h *hearing) askRBAC(ctx context.Context, key string) (bool, error) {
	if h.in.Review == nil || h.in.Review.Authorizer == nil {
		return false, errNoRequest
	}
	requester, account := policy.UserInfo(&h.in.User), user.Info(nil)
	if h.in.ServiceAccount != "" {
		account = policy.AccountInfo(h.in.Namespace, h.in.ServiceAccount)
	}
	if h.byAccount {
		requester, account = account, requester
	}
	may, err := h.askOf(ctx, requester, key)
	if may || account == nil {
		return may, err
	}
	may, second := h.askOf(ctx, account, key)
	if may {
		h.byAccount = !h.byAccount
		return true, nil
	}
	return false, errors.Join(err, second)
}

// askOf asks RBAC whether a user may tolerate the taints of a key.
func (h *hearing) askOf(ctx context.Context, who user.Info, key string) (bool, error) {
	if h.refusals >= maxRefusals {
		return false, errNotAsked
	}
	may, err := policy.May(ctx, h.in.Review.Authorizer, who, policy.VerbTolerate, key)
	if err == nil && !may {
		h.refusals++
	}
	return may, err
}

// condition reports whether the conditions of a policy hold for the request. Those
// that fail hold, as in a ValidatingAdmissionPolicy that fails closed.
func (h *hearing) condition(ctx context.Context, position int, p *compiled) condition {
	if !p.conditional {
		return condition{holds: true}
	}
	if known, ok := h.conditions[position]; ok {
		return known
	}
	c := h.evaluate(ctx, p)
	if h.conditions == nil {
		h.conditions = map[int]condition{}
	}
	h.conditions[position] = c
	return c
}

func (h *hearing) evaluate(ctx context.Context, p *compiled) condition {
	// Without an object there is no request that the conditions could be about. What
	// they would say is not held against anybody.
	if h.in.objectUnknown && unknown(p.conditions.Uses()) {
		return condition{}
	}
	if h.in.Review == nil {
		return condition{holds: true, fault: errNoRequest}
	}
	holds, err := p.conditions.Match(ctx, h.review(p), &cel.Judged{})
	var failed *cel.FailedError
	switch {
	case errors.As(err, &failed):
		return condition{holds: !h.in.objectUnknown, note: "its matchConditions failed: " + policy.Short(failed.Problem, maxNote)}
	case err != nil:
		return condition{holds: true, fault: fmt.Errorf("evaluate the conditions of TolerationPolicy %s: %w", p.name, err)}
	default:
		return condition{holds: holds}
	}
}
