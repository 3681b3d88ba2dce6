package auth

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
)

const (
	// keptFor is how long an answer holds, yes or no: a grant that is taken away may
	// be used for so long. API servers that ask a webhook keep a yes for 5 minutes.
	keptFor = 10 * time.Second
	// kept is the number of answers kept, of some hundred bytes each.
	kept = 4096
	// atOnce is the number of questions under way. Those beyond it wait in lines.
	atOnce = 32
	// patience is the time for one answer, waiting included. Who asked may be gone
	// by then; the answer is kept for the next.
	patience = 2 * time.Second
)

type reviewer interface {
	Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, options metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// Authority is an authorizer.Authorizer that asks the API server. It is safe for
// concurrent use.
type Authority struct {
	reviews reviewer
	answers *cache.LRUExpireCache
	asked   singleflight.Group
	lines   *lines
	clock   clock.PassiveClock
}

// AuthorityLimits bound the questions to the API server. The zero Limits have no rate.
type AuthorityLimits struct {
	// PerSecond is the rate of questions, and Burst the number at once after a while
	// without any.
	PerSecond float64
	Burst     int
}

// requester is the key of the namespace of a request in its context.
type requester struct{}

// InNamespace returns the context of a request in a namespace. The questions that the request
// leads to wait for others of the namespace, and not for those of other namespaces.
func InNamespace(ctx context.Context, namespace string) context.Context {
	return &namespaced{ctx, namespace}
}

// namespaced is the context of a request in a namespace. context.WithValue would allocate
// twice for every review, most of which ask nothing.
type namespaced struct {
	context.Context //nolint:containedctx // It is a context.

	namespace string
}

// Value implements context.Context.
func (n *namespaced) Value(key any) any {
	if key == (requester{}) {
		return n.namespace
	}
	return n.Context.Value(key)
}

// answer is what the API server said. The zero answer allows nothing.
type answer struct {
	decision authorizer.Decision
	reason   string
}

// NewAuthority returns an Authority that asks by reviews, within limits.
func NewAuthority(reviews reviewer, now clock.Clock, limits AuthorityLimits) *Authority {
	return &Authority{
		reviews: reviews,
		answers: cache.NewLRUExpireCacheWithClock(kept, now),
		clock:   now,
		lines:   newLines(limits, now),
	}
}

// Authorize implements authorizer.Authorizer. An error comes with DecisionNoOpinion
// and means that nobody could say; it is a BusyError where the API server was not asked because
// the answer would come after the end of ctx.
func (a *Authority) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	spec := specOf(attributes)
	key := keyOf(&spec)
	if known, ok := a.answers.Get(key); ok {
		said := known.(answer)
		return said.decision, said.reason, nil
	}
	namespace, _ := ctx.Value(requester{}).(string)
	within := patience
	if end, bounded := ctx.Deadline(); bounded {
		within = min(within, end.Sub(a.clock.Now()))
	}
	// The rest is for the answer: where the line is as long as the review may take, answers come
	// too late for all.
	within /= 2
	// Who asks the same at the same time shares the answer, and none of them ends
	// the question for the others. Each namespace asks for itself: a question must not
	// wait in the line of another.
	result := a.asked.DoChan(string(key[:])+namespace, func() (any, error) {
		return a.ask(context.WithoutCancel(ctx), key, spec, namespace, within)
	})
	select {
	case <-ctx.Done():
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("review access: %w", context.Cause(ctx))
	case r := <-result:
		if r.Err != nil {
			return authorizer.DecisionNoOpinion, "", r.Err
		}
		said := r.Val.(answer)
		return said.decision, said.reason, nil
	}
}

func (a *Authority) ask(
	ctx context.Context, key key, spec authorizationv1.SubjectAccessReviewSpec, namespace string, within time.Duration,
) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := a.lines.enter(ctx, namespace, within); err != nil {
		return answer{}, err
	}
	defer a.lines.leave()
	review, err := a.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return answer{}, fmt.Errorf("review access: %w", err)
	}
	said := answerOf(&review.Status)
	if said.decision == authorizer.DecisionAllow || review.Status.EvaluationError == "" {
		a.answers.Add(key, said, keptFor)
	}
	return said, nil
}

// answerOf reads an answer. A no with an evaluation error is a no: RBAC gives one for
// every binding to a role that does not exist. It may pass, so it is not kept.
func answerOf(status *authorizationv1.SubjectAccessReviewStatus) answer {
	switch {
	case status.Denied:
		return answer{decision: authorizer.DecisionDeny, reason: status.Reason}
	case status.Allowed:
		return answer{decision: authorizer.DecisionAllow, reason: status.Reason}
	default:
		return answer{decision: authorizer.DecisionNoOpinion, reason: status.Reason}
	}
}

// ConditionsAwareAuthorize implements authorizer.Authorizer: a SubjectAccessReview
// knows of no conditions.
func (a *Authority) ConditionsAwareAuthorize(ctx context.Context, attributes authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attributes))
}

// EvaluateConditions implements authorizer.Authorizer. There are none to evaluate.
func (a *Authority) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}
