package auth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/selection"
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
	// atOnce is the number of questions under way. Those beyond it wait in the fair limiter.
	atOnce = 32
	// patience is the time for one answer, waiting included. The request may be over by
	// then; the answer is kept for the next.
	patience = 2 * time.Second
)

type reviewer interface {
	Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, options metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// Authority is an authorizer.Authorizer that asks the API server. It is safe for
// concurrent use.
type Authority struct {
	// AuthorizerFunc is authorize, without conditions: a SubjectAccessReview knows of none.
	authorizer.AuthorizerFunc

	reviews reviewer
	answers *cache.LRUExpireCache
	flights singleflight.Group
	limiter *fairLimiter
	clock   clock.PassiveClock
}

// AuthorityLimits bound the questions to the API server.
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

// answer is one of the API server. The zero answer, DecisionDeny, allows nothing.
type answer struct {
	decision authorizer.Decision
	reason   string
}

// NewAuthority returns an Authority that asks by reviews, within limits.
func NewAuthority(reviews reviewer, now clock.Clock, limits AuthorityLimits) *Authority {
	a := &Authority{
		reviews: reviews,
		answers: cache.NewLRUExpireCacheWithClock(kept, now),
		clock:   now,
		limiter: newFairLimiter(limits, now),
	}
	a.AuthorizerFunc = a.authorize
	return a
}

// authorize answers a question, from memory if it can. An error comes with DecisionNoOpinion
// and means that there is no answer; it is a BusyError where the API server was not asked because
// the answer would come after the end of ctx.
func (a *Authority) authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	spec := specOf(attributes)
	key, err := keyOf(&spec)
	if err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	if cached, ok := a.answers.Get(key); ok {
		result := cached.(answer)
		return result.decision, result.reason, nil
	}
	namespace, _ := ctx.Value(requester{}).(string)
	within := patience
	if end, bounded := ctx.Deadline(); bounded {
		within = min(within, end.Sub(a.clock.Now()))
	}
	// The rest is for the answer: where the wait is as long as the review may take, answers come
	// too late for all.
	within /= 2
	// The same questions at the same time share the answer, and none of them ends the question
	// for the others. Each namespace asks for itself: a question must not wait for the questions
	// of another.
	flight := a.flights.DoChan(string(key[:])+namespace, func() (any, error) {
		return a.ask(context.WithoutCancel(ctx), key, spec, namespace, within)
	})
	select {
	case <-ctx.Done():
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("review access: %w", context.Cause(ctx))
	case r := <-flight:
		if r.Err != nil {
			return authorizer.DecisionNoOpinion, "", r.Err
		}
		result := r.Val.(answer)
		return result.decision, result.reason, nil
	}
}

func (a *Authority) ask(
	ctx context.Context, key digest, spec authorizationv1.SubjectAccessReviewSpec, namespace string, within time.Duration,
) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := a.limiter.wait(ctx, namespace, within); err != nil {
		return answer{}, err
	}
	defer a.limiter.done()
	review, err := a.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return answer{}, fmt.Errorf("review access: %w", err)
	}
	status := &review.Status
	result := answer{authorizer.DecisionNoOpinion, status.Reason}
	switch {
	case status.Denied:
		result.decision = authorizer.DecisionDeny
	case status.Allowed:
		result.decision = authorizer.DecisionAllow
	}
	// A no with an evaluation error is a no: RBAC gives one for every binding to a role that does
	// not exist. It may pass, so it is not kept.
	if result.decision == authorizer.DecisionAllow || status.EvaluationError == "" {
		a.answers.Add(key, result, keptFor)
	}
	return result, nil
}

// specOf puts a question as the API server takes it. The groups are in order, so that
// the same user asks the same.
func specOf(attributes authorizer.Attributes) authorizationv1.SubjectAccessReviewSpec {
	var spec authorizationv1.SubjectAccessReviewSpec
	if subject := attributes.GetUser(); subject != nil {
		spec.User, spec.UID = subject.GetName(), subject.GetUID()
		spec.Groups = slices.Sorted(slices.Values(subject.GetGroups()))
		for name, values := range subject.GetExtra() {
			if spec.Extra == nil {
				spec.Extra = map[string]authorizationv1.ExtraValue{}
			}
			spec.Extra[name] = values
		}
	}
	if !attributes.IsResourceRequest() {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: attributes.GetPath(), Verb: attributes.GetVerb()}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace:   attributes.GetNamespace(),
		Verb:        attributes.GetVerb(),
		Group:       attributes.GetAPIGroup(),
		Version:     attributes.GetAPIVersion(),
		Resource:    attributes.GetResource(),
		Subresource: attributes.GetSubresource(),
		Name:        attributes.GetName(),
	}
	// Requirements only narrow a question. Those that cannot be read or written are left out,
	// and the question is the wider one.
	ofFields, _ := attributes.GetFieldSelector()
	var fields []metav1.FieldSelectorRequirement
	for _, r := range ofFields {
		if operator, ok := fieldOperators[r.Operator]; ok {
			fields = append(fields, metav1.FieldSelectorRequirement{Key: r.Field, Operator: operator, Values: []string{r.Value}})
		}
	}
	if len(fields) > 0 {
		spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: fields}
	}
	ofLabels, _ := attributes.GetLabelSelector()
	var labels []metav1.LabelSelectorRequirement
	for _, r := range ofLabels {
		if operator, ok := labelOperators[r.Operator()]; ok {
			requirement := metav1.LabelSelectorRequirement{Key: r.Key(), Operator: operator}
			if operator == metav1.LabelSelectorOpIn || operator == metav1.LabelSelectorOpNotIn {
				requirement.Values = r.Values().List()
			}
			labels = append(labels, requirement)
		}
	}
	if len(labels) > 0 {
		spec.ResourceAttributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: labels}
	}
	return spec
}

// The operators of selectors as a review has them.
var (
	fieldOperators = map[selection.Operator]metav1.FieldSelectorOperator{
		selection.Equals: metav1.FieldSelectorOpIn, selection.DoubleEquals: metav1.FieldSelectorOpIn, selection.In: metav1.FieldSelectorOpIn,
		selection.NotEquals: metav1.FieldSelectorOpNotIn, selection.NotIn: metav1.FieldSelectorOpNotIn,
	}
	labelOperators = map[selection.Operator]metav1.LabelSelectorOperator{
		selection.Equals: metav1.LabelSelectorOpIn, selection.DoubleEquals: metav1.LabelSelectorOpIn, selection.In: metav1.LabelSelectorOpIn,
		selection.NotEquals: metav1.LabelSelectorOpNotIn, selection.NotIn: metav1.LabelSelectorOpNotIn,
		selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
	}
)

// keyOf returns what tells questions apart: a digest of a whole question, so that the names and
// tokens of users are not kept.
func keyOf(spec *authorizationv1.SubjectAccessReviewSpec) (digest, error) {
	content, err := spec.Marshal()
	return sha256.Sum256(content), err
}
