package toleration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// review is the state of the review of one input.
type review struct {
	in     Input
	report policy.Report
	// curtailed says that RBAC was not asked about all tolerations, as the findings tell.
	curtailed bool
	// settled are the tolerations that are not judged: those added to the object, and those
	// of its template, which was judged. It is nil where there are none.
	settled sets.Set[identity]
	// conditions are the evaluated conditions of policies, by name. By pointer, each question would be
	// allocated with the toleration that it points to.
	conditions map[string]condition
	// allowed are the answers of RBAC by key, the same for all policies.
	allowed map[string]bool
	// unavailable is the error of RBAC. It is not asked again then: an authorizer that is slow
	// or busy would be asked for every toleration.
	unavailable error
	// refusals is the number of denials by RBAC. accountFirst is true if the service account is asked
	// about before the requester: RBAC allowed it last, or the requester is a controller.
	refusals     int
	accountFirst bool
	// refusalsAside counts the refusals that policies asked for which cannot refuse, so that
	// they do not use up the questions of those that can.
	refusalsAside int
	// fault is the first reason why a policy could not be judged.
	fault error
	// last is what expressions were last given.
	last *cel.Judged
}

// condition says whether the conditions of a policy hold for the request.
type condition struct {
	holds bool
	note  string
	fault error
}

// controllers begins the names of the controllers of Kubernetes.
const controllers = serviceaccount.ServiceAccountUsernamePrefix + metav1.NamespaceSystem + ":"

func newReview(in Input) review {
	// Controllers of Kubernetes create most pods, and RBAC seldom allows them what it allows the pods.
	h := review{in: in, accountFirst: strings.HasPrefix(in.User.Username, controllers)}
	if n := len(in.Added) + len(in.Inherited); n > 0 {
		h.settled = make(sets.Set[identity], n)
	}
	for i := range in.Added {
		t := in.read(&in.Added[i], "")
		h.settled.Insert(identify(&t))
	}
	for i := range in.Inherited {
		t := selector.OfPod(&in.Inherited[i])
		h.settled.Insert(identify(&t))
	}
	return h
}

// isSettled reports whether a toleration is not judged, because Kubernetes itself adds it, or
// it was added or judged otherwise.
func (h *review) isSettled(t *selector.Toleration) bool {
	return len(h.settled) > 0 && h.settled.Has(identify(t)) || h.in.system(t)
}

// failed records the first fault.
func (h *review) failed(err error) {
	h.fault = cmp.Or(h.fault, err)
}

// fresh yields the tolerations of a list that are judged: those that are not in the old list, as
// often as they are there, and not settled. It is small so that it is inlined, and allocates nothing
// then.
func (h *review) fresh(asked *Asked) iter.Seq2[int, selector.Toleration] {
	return func(yield func(int, selector.Toleration) bool) { h.eachFresh(asked, yield) }
}

func (h *review) eachFresh(asked *Asked, yield func(int, selector.Toleration) bool) {
	identityOf := func(written *corev1.Toleration) identity {
		t := h.in.read(written, asked.Class)
		return identify(&t)
	}
	same := 0 // Most updates change nothing.
	for same < min(len(asked.New), len(asked.Old)) && identityOf(&asked.New[same]) == identityOf(&asked.Old[same]) {
		same++
	}
	var old map[identity]int
	if rest := asked.Old[same:]; len(rest) > 0 {
		old = make(map[identity]int, len(rest))
		for i := range rest {
			old[identityOf(&rest[i])]++
		}
	}
	for i := same; i < len(asked.New); i++ {
		t := h.in.read(&asked.New[i], asked.Class)
		if id := identify(&t); old[id] > 0 {
			old[id]--
		} else if !h.isSettled(&t) && !yield(i, t) {
			return
		}
	}
}

// question asks one policy about one toleration.
type question struct {
	policy *compiled
	t      *selector.Toleration
	asked  *Asked // holds the toleration at i. A pointer to it here would have t allocated.
	i      int
	// outlasts says that the toleration could outlast a guarded NoExecute taint.
	outlasts bool
}

// outcome is the answer of a policy about a toleration that it guards.
type outcome struct {
	allowed bool
	// bounded says that a grant matches, but for no longer than limit seconds.
	bounded bool
	limit   int64
	// notes tell the user what failed.
	notes []string
	// fault says why it is unknown whether a grant matches.
	fault error
}

var errNoRequest = errors.New("there is no request to ask about")

// maxRefusals bounds the questions that RBAC answers with no: the requester and the service
// account, for two keys. The user chooses the keys and the account, and could otherwise cause
// any number of questions by one request. Answers of yes are not counted: a pod may need as
// many keys as are granted to it.
const maxRefusals = 4

// errNotAsked is the fault of a key about which RBAC is not asked any more.
var errNotAsked = fmt.Errorf("RBAC is asked no more after it did not grant %d permissions", maxRefusals)

// judge evaluates the grants of a policy: first those that cost nothing, then the conditions
// of the policy, then expressions, then RBAC. So a policy that can refuse asks RBAC only about
// what nothing else grants, and what RBAC does not grant either is refused.
func (h *review) judge(ctx context.Context, q *question) outcome {
	var r outcome
	for i := range q.policy.grants {
		g := &q.policy.grants[i]
		if g.cost() > 0 {
			break
		}
		if g.admits(&h.in) && r.take(g, q) {
			return r
		}
	}
	c := h.condition(ctx, q.policy)
	if !c.holds {
		return outcome{allowed: true}
	}
	r.fault = c.fault
	r.note(c.note)
	if q.policy.dynamic {
		h.judgeDynamic(ctx, q, &r)
	}
	return r
}

// take records a grant that matches, and reports whether that is enough.
func (r *outcome) take(g *grant, q *question) bool {
	if g.fits(q.t, q.outlasts) {
		*r = outcome{allowed: true}
		return true
	}
	if !r.bounded {
		r.bounded, r.limit = true, *g.limit
	}
	r.limit = max(r.limit, *g.limit)
	return false
}

func (r *outcome) note(text string) {
	if text != "" {
		r.notes = append(r.notes, text)
	}
}

// judgeDynamic evaluates the grants with RBAC or an expression. An error is a fault only where
// the grant would have been enough.
func (h *review) judgeDynamic(ctx context.Context, q *question, r *outcome) {
	for i := range q.policy.grants {
		g := &q.policy.grants[i]
		if g.cost() == 0 || !g.admits(&h.in) {
			continue
		}
		granted, err := h.grants(ctx, g, q)
		failed, failure := errors.AsType[*cel.FailedError](err)
		switch {
		case failure:
			r.note(fmt.Sprintf("the expression of grants[%d] failed: %s", g.position, policy.Short(failed.Problem, maxNote)))
		case err != nil && g.fits(q.t, q.outlasts):
			r.fault = errors.Join(r.fault, fmt.Errorf("ask grants[%d] of TolerationPolicy %s: %w", g.position, q.policy.name, err))
		case err == nil && granted && r.take(g, q):
			return
		}
	}
}

// grants evaluates the expression of a grant, unless its result cannot be known yet, and RBAC.
func (h *review) grants(ctx context.Context, g *grant, q *question) (bool, error) {
	if e := g.expression; e != nil && (!h.in.RequesterUnknown || !e.Uses().Requester) && (!h.in.objectUnknown || !unknown(e.Uses())) {
		if h.in.Review == nil {
			return false, errNoRequest
		}
		if holds, err := e.Bool(ctx, h.celReview(q.policy), h.judged(q)); err != nil || !holds {
			return false, err
		}
	}
	if !g.rbac || h.in.RequesterUnknown {
		return true, nil
	}
	return h.may(ctx, q.policy, q.t.Key)
}

// celReview returns the review in which expressions of a policy are evaluated. A policy that
// cannot refuse does not use up the budget of those that can.
func (h *review) celReview(c *compiled) *cel.Review {
	if c.denies {
		return h.in.Review
	}
	return h.in.Review.Aside()
}

// judged returns what expressions read of the toleration, the same for policies one after the other.
func (h *review) judged(q *question) *cel.Judged {
	if written := &q.asked.New[q.i]; h.last == nil || h.last.Toleration != written {
		h.last = &cel.Judged{Toleration: written, Pod: h.in.Pod, Claim: h.in.Claim}
	}
	return h.last
}

// may reports whether RBAC allows the requester, or the service account of the pod, to
// tolerate the taints of a key.
func (h *review) may(ctx context.Context, p *compiled, key string) (bool, error) {
	if allowed, ok := h.allowed[key]; ok {
		return allowed, nil
	}
	switch {
	case h.unavailable != nil:
		return false, h.unavailable
	case h.report.Denied: // the answer could not change the verdict
		return false, errNotAsked
	}
	allowed, err := h.askRBAC(ctx, p, key)
	if err != nil {
		if !errors.Is(err, errNotAsked) {
			h.unavailable = err
		}
		return false, err
	}
	if h.allowed == nil {
		h.allowed = map[string]bool{}
	}
	h.allowed[key] = allowed
	return allowed, nil
}

func (h *review) askRBAC(ctx context.Context, p *compiled, key string) (bool, error) {
	if h.in.Review == nil || h.in.Review.Authorizer == nil {
		return false, errNoRequest
	}
	users := append(make([]user.Info, 0, 2), policy.UserInfo(&h.in.User))
	if h.in.ServiceAccount != "" {
		users = append(users, policy.AccountInfo(h.in.Namespace, h.in.ServiceAccount))
	}
	if h.accountFirst {
		slices.Reverse(users)
	}
	refusals := &h.refusals
	if !p.denies {
		refusals = &h.refusalsAside
	}
	var fault error
	for i, u := range users {
		allowed, err := false, errNotAsked
		if *refusals < maxRefusals {
			allowed, err = policy.May(ctx, h.in.Review.Authorizer, u, policy.VerbTolerate, key)
		}
		if allowed {
			if i > 0 {
				h.accountFirst = !h.accountFirst
			}
			return true, nil
		}
		if err == nil {
			*refusals++
		}
		fault = errors.Join(fault, err)
	}
	return false, fault
}

// condition reports whether the conditions of a policy hold for the request. Conditions that
// fail hold, as in a ValidatingAdmissionPolicy that fails closed.
func (h *review) condition(ctx context.Context, p *compiled) condition {
	if p.conditions.Empty() {
		return condition{holds: true}
	}
	if c, ok := h.conditions[p.name]; ok {
		return c
	}
	c := h.evaluate(ctx, p)
	if h.conditions == nil {
		h.conditions = map[string]condition{}
	}
	h.conditions[p.name] = c
	return c
}

func (h *review) evaluate(ctx context.Context, p *compiled) condition {
	// Without an object there is no request for the conditions. Then they hold for nothing.
	if h.in.objectUnknown && unknown(p.conditions.Uses()) {
		return condition{}
	}
	if h.in.Review == nil {
		return condition{holds: true, fault: errNoRequest}
	}
	holds, err := p.conditions.Match(ctx, h.celReview(p))
	switch failed, failure := errors.AsType[*cel.FailedError](err); {
	case failure:
		return condition{holds: !h.in.objectUnknown, note: "its matchConditions failed: " + policy.Short(failed.Problem, maxNote)}
	case err != nil:
		return condition{holds: true, fault: fmt.Errorf("evaluate the conditions of TolerationPolicy %s: %w", p.name, err)}
	default:
		return condition{holds: holds}
	}
}
