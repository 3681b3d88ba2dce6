package cel

import (
	"encoding/json"
	"errors"

	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Review holds the data and the budget of the expressions of one request. Objects are
// decoded when first read, once. It is not safe for concurrent use.
type Review struct {
	// Request is null in expressions where it is nil, as are object and oldObject.
	Request *admissionv1.AdmissionRequest
	// Namespace is nil for requests outside of namespaces.
	Namespace *corev1.Namespace
	// Authorizer answers the checks of authorizer, and those of rbac: true.
	Authorizer authorizer.Authorizer
	// Turns bound how many costly evaluations of all reviews run at the same time; nil does not.
	Turns *Turns

	// main is the review that this one is beside, or nil.
	main  *Review
	aside *Review

	seen    seen
	answers answers
	spent   uint64
	// spentAtOnce is what was evaluated without a turn, and hadTurn is true after the first one.
	spentAtOnce uint64
	hadTurn     bool
}

// Aside returns the same review for expressions that refuse nothing: messages, and those of policies
// that only warn. It shares all but the budget, of which it has its own, so that
// a message cannot take the budget of an expression that averts a refusal.
func (r *Review) Aside() *Review {
	if r == nil || r.main != nil {
		return r
	}
	if r.aside == nil {
		r.aside = &Review{main: r}
	}
	return r.aside
}

// Judged holds the judged objects by their names in expressions. Nil and empty are
// null.
type Judged struct {
	// Toleration and Taint of a device are in the form of those of a pod and a node. At most one of
	// them is set.
	Toleration *corev1.Toleration
	Taint      *corev1.Taint
	Operation  string
	// Pod and Claim are {"metadata": ..., "spec": ...} in JSON, of the object or of
	// the template within. They are not to be changed while the review lasts.
	Pod, Claim json.RawMessage
}

// maxAnswers is the number of answers that a review keeps. No installation has so many
// policies and tolerations; the expressions about an object with more are evaluated until the
// budget is spent.
const maxAnswers = 1_024

// evaluation is an expression and all on which its result may depend within a review.
type evaluation struct {
	program    *Program
	pod, claim extract
	fields     fields
	operation  string
}

// answer is the result or the failure of an expression. The same evaluation within a
// review has the same one, at no cost.
type answer struct {
	value ref.Val
	err   error
}

// answers are those of a review. The first one stands apart: most reviews have no other, and a map for
// it alone is twice as large.
type answers struct {
	first *firstAnswer
	more  map[evaluation]answer
}

type firstAnswer struct {
	evaluation

	answer answer
}

// of returns the answer of an evaluation; false for none.
func (a *answers) of(e *evaluation) (answer, bool) {
	if a.first != nil && a.first.evaluation == *e {
		return a.first.answer, true
	}
	kept, ok := a.more[*e]
	return kept, ok
}

// keep adds an answer, as long as there is room. A fault is no answer, and neither is a budget that was
// too small for one.
func (a *answers) keep(e *evaluation, kept answer) {
	switch {
	case kept.err != nil && !errors.As(kept.err, new(*FailedError)) || errors.Is(kept.err, errExhausted):
	case a.first == nil:
		a.first = &firstAnswer{*e, kept}
	case len(a.more) < maxAnswers-1:
		if a.more == nil {
			a.more = map[evaluation]answer{}
		}
		a.more[*e] = kept
	}
}
