package cel

import (
	"errors"
	"time"

	"github.com/google/cel-go/common/types/ref"
)

// maxAnswers is the number of answers that a review keeps. Nobody has so many
// policies and tolerations; an object made to hurt is evaluated until it cannot pay.
const maxAnswers = 1_024

// answer is the result or the failure of an expression. Asked the same again within a
// review it says the same, at no cost.
type answer struct {
	value  ref.Val
	failed *FailedError
}

// question is an expression, and all by which its result may differ within a review.
type question struct {
	program           *Program
	pod, claim        extract
	toleration, taint identity
	operation         string
}

// extract is a part of an object, told by where it is.
type extract struct {
	first *byte
	size  int
}

func extractOf(raw []byte) extract {
	if len(raw) == 0 {
		return extract{}
	}
	return extract{first: &raw[0], size: len(raw)}
}

// identity is all that a toleration or a taint holds.
type identity struct {
	there                        bool
	key, operator, value, effect string
	bounded                      bool
	seconds                      int64
	added                        time.Time
}

// identityOf returns the identity of a toleration or a taint, or of none.
func identityOf(value ref.Val, err error) (identity, error) {
	f, ok := value.(*fields)
	if err != nil || !ok {
		return identity{}, err
	}
	id := identity{there: true, key: f.key, operator: f.operator, value: f.value, effect: f.effect}
	if f.seconds != nil {
		id.bounded, id.seconds = true, *f.seconds
	}
	if !f.added.IsZero() {
		id.added = f.added.UTC()
	}
	return id, nil
}

// question returns what an evaluation asks. What does not look at the toleration is
// asked once for all of them.
func (p *Program) question(judged *Judged) (question, error) {
	q := question{program: p}
	if p.uses.Object {
		q.pod, q.claim = extractOf(judged.Pod), extractOf(judged.Claim)
	}
	if !p.uses.Judged {
		return q, nil
	}
	var tolerationErr, taintErr error
	q.operation = judged.Operation
	q.toleration, tolerationErr = identityOf(tolerationValue(judged.Toleration))
	q.taint, taintErr = identityOf(taintValue(judged.Taint))
	return q, errors.Join(tolerationErr, taintErr)
}

// keep keeps an answer, as long as there is room. A fault is none, and neither is that
// too little was left to pay for one.
func (r *Review) keep(q question, value ref.Val, err error) {
	var failed *FailedError
	if err != nil && (!errors.As(err, &failed) || failed.Problem == exhausted) {
		return
	}
	kept := &r.shared().answers
	if len(*kept) >= maxAnswers {
		return
	}
	if *kept == nil {
		*kept = map[question]answer{}
	}
	(*kept)[q] = answer{value: value, failed: failed}
}

// known returns what was answered before.
func (r *Review) known(q question) (ref.Val, error, bool) {
	a, ok := r.shared().answers[q]
	if a.failed != nil {
		return nil, a.failed, ok
	}
	return a.value, nil, ok
}
