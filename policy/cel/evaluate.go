package cel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/utils/ptr"
)

// Bool evaluates an expression of type Bool. The error is a *FailedError where the
// expression fails. Every other error is a fault from outside (the context ended,
// or the authorizer did not answer) and must not become a verdict.
func (p *Program) Bool(ctx context.Context, review *Review, judged *Judged) (bool, error) {
	value, err := p.evaluate(ctx, review, judged)
	result, _ := value.(types.Bool)
	return bool(result), err
}

// Text evaluates an expression of type String, as Bool does. The result is one
// line; a text that is empty, is longer than a ValidatingAdmissionPolicy allows, or
// has line breaks, is a failure.
func (p *Program) Text(ctx context.Context, review *Review, judged *Judged) (string, error) {
	value, err := p.evaluate(ctx, review, judged)
	if err != nil {
		return "", err
	}
	result, _ := value.(types.String)
	text := strings.TrimSpace(string(result))
	switch {
	case text == "":
		return "", &FailedError{"the text is empty"}
	case len(text) > celconfig.MaxEvaluatedMessageExpressionSizeBytes:
		return "", &FailedError{fmt.Sprintf("the text is longer than %d bytes", celconfig.MaxEvaluatedMessageExpressionSizeBytes)}
	case strings.ContainsAny(text, "\r\n"):
		return "", &FailedError{"the text has more than one line"}
	}
	return text, nil
}

func (p *Program) evaluate(ctx context.Context, review *Review, judged *Judged) (ref.Val, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	if review == nil {
		review = &Review{}
	}
	if judged == nil {
		judged = &Judged{}
	}
	// The main review holds what both read, and keeps values and answers.
	main, evaluation := cmp.Or(review.main, review), evaluation{program: p}
	if p.uses.Object {
		evaluation.pod, evaluation.claim = extractOf(judged.Pod), extractOf(judged.Claim)
	}
	if p.uses.Judged { // otherwise it is evaluated once for all tolerations
		evaluation.fields, evaluation.operation = fieldsOf(judged), judged.Operation
	}
	if kept, ok := main.answers.of(&evaluation); ok {
		return kept.value, kept.err
	}
	value, err := p.run(review, &scope{ctx: ctx, program: p, review: main, judged: judged})
	main.answers.keep(&evaluation, answer{value, err})
	return value, err
}

// run evaluates as much as the review can pay for: at once what costs as little as most expressions
// do, and what costs more when it has a turn.
func (p *Program) run(review *Review, variables *scope) (ref.Val, error) {
	main := variables.review
	level, ok := review.affordable()
	if !ok {
		return nil, errExhausted
	}
	if main.spentAtOnce <= costAtOnce {
		value, cost, err := p.attempt(variables, little)
		main.spentAtOnce += cost
		if level == little || !errors.Is(err, errExhausted) {
			review.spent += cost
			return value, err
		}
	}
	if err := main.Turns.take(variables.ctx, !main.hadTurn); err != nil {
		return nil, err
	}
	main.hadTurn, variables.turns = true, main.Turns
	defer variables.leave()
	value, cost, err := p.attempt(variables, level)
	review.spent += cost
	return value, err
}

// attempt evaluates within the limit of a level. It returns what that takes of a budget as well.
func (p *Program) attempt(variables *scope, level int) (ref.Val, uint64, error) {
	program, err := p.plans[level]()
	if err != nil {
		return nil, 0, fmt.Errorf("plan expression: %w", err)
	}
	values := &variables.review.seen
	values.misread = ""
	var value ref.Val
	var details *cel.EvalDetails
	if level == little {
		value, details, err = program.Eval(variables) // It ends before the context would be looked at.
	} else {
		value, details, err = program.ContextEval(variables.ctx, variables)
	}
	cost := taken(min(ptr.Deref(details.ActualCost(), limits[level]), limits[level])) // as much as its limit if it is not known
	switch fault := errors.Join(variables.unreadable, variables.unauthorized); {
	case fault != nil:
		return nil, cost, fmt.Errorf("evaluate expression: %w", fault)
	case err != nil:
		return nil, cost, p.failure(variables.ctx, err, level)
	case values.misread != "":
		return nil, cost, &FailedError{values.misread}
	}
	return value, cost, nil
}

// failure tells the failures of an expression from faults, and says where in the text they are, if that is
// known.
func (p *Program) failure(ctx context.Context, err error, level int) error {
	if ctx.Err() != nil && errors.Is(err, interpreter.InterruptError{}) {
		return ended(ctx)
	}
	if cancelled := (interpreter.EvalCancelledError{}); errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded {
		if level > 0 {
			return errExhausted
		}
		return &FailedError{tooCostly}
	}
	message := err.Error()
	if strings.HasPrefix(message, "internal error:") { // the prefix of a recovered panic
		return fmt.Errorf("evaluate expression: %w", err)
	}
	problem := short(message)
	if value := (*types.Err)(nil); errors.As(err, &value) {
		if position := positionOf(p.ast.NativeRep().SourceInfo().GetStartLocation(value.NodeID())); position != "" {
			problem += " (" + position + ")"
		}
	}
	return &FailedError{problem}
}

func ended(ctx context.Context) error {
	return fmt.Errorf("evaluate expression: %w", context.Cause(ctx))
}
