package cel

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
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
		return "", &FailedError{Problem: "the text is empty"}
	case len(text) > celconfig.MaxEvaluatedMessageExpressionSizeBytes:
		return "", &FailedError{Problem: fmt.Sprintf("the text is longer than %d bytes", celconfig.MaxEvaluatedMessageExpressionSizeBytes)}
	case strings.ContainsAny(text, "\r\n"):
		return "", &FailedError{Problem: "the text has more than one line"}
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
	evaluation := p.evaluationOf(judged)
	if kept, ok := review.shared().answers.of(&evaluation); ok {
		return kept.value, kept.err
	}
	value, err := p.run(ctx, review, judged)
	review.keep(&evaluation, value, err)
	return value, err
}

// run evaluates as much as the review can pay for: at once what costs as little as most expressions
// do, and what costs more when it has a turn.
func (p *Program) run(ctx context.Context, review *Review, judged *Judged) (ref.Val, error) {
	level, ok := review.affordable()
	if !ok {
		return nil, errExhausted
	}
	main := review.shared()
	if main.spentAtOnce <= costAtOnce {
		value, cost, err := p.attempt(&scope{ctx: ctx, program: p, review: review, judged: judged}, little)
		main.spentAtOnce += cost
		if level == little || !errors.Is(err, errExhausted) {
			review.spent += cost
			return value, err
		}
	}
	if err := main.Turns.take(ctx, !main.hadTurn); err != nil {
		return nil, err
	}
	main.hadTurn = true
	variables := &scope{ctx: ctx, program: p, review: review, judged: judged, turns: main.Turns}
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
	values := &variables.review.shared().seen
	values.misread = ""
	var value ref.Val
	var details *cel.EvalDetails
	if level == little {
		value, details, err = program.Eval(variables) // It ends before the context would be looked at.
	} else {
		value, details, err = program.ContextEval(variables.ctx, variables)
	}
	cost := takenBy(details, limits[level])
	if fault := variables.fault(); fault != nil {
		return nil, cost, fmt.Errorf("evaluate expression: %w", fault)
	}
	if err != nil {
		return nil, cost, p.failure(variables.ctx, err, level)
	}
	if values.misread != "" {
		return nil, cost, &FailedError{Problem: values.misread}
	}
	return value, cost, nil
}

// failure tells the failures of an expression from faults.
func (p *Program) failure(ctx context.Context, err error, level int) error {
	if ctx.Err() != nil && errors.Is(err, interpreter.InterruptError{}) {
		return ended(ctx)
	}
	if cancelled := (interpreter.EvalCancelledError{}); errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded {
		if level > 0 {
			return errExhausted
		}
		return &FailedError{Problem: tooCostly}
	}
	message := err.Error()
	if strings.HasPrefix(message, "internal error:") { // the prefix of a recovered panic
		return fmt.Errorf("evaluate expression: %w", err)
	}
	return &FailedError{Problem: short(message) + p.at(err)}
}

// at returns where in the text an error came from, if that is known.
func (p *Program) at(err error) string {
	value := (*types.Err)(nil)
	if !errors.As(err, &value) || value.NodeID() == 0 {
		return ""
	}
	location := p.ast.NativeRep().SourceInfo().GetStartLocation(value.NodeID())
	if location.Line() < 1 || location.Column() < 0 {
		return ""
	}
	return fmt.Sprintf(" (line %d, column %d)", location.Line(), location.Column()+1)
}

func ended(ctx context.Context) error {
	return fmt.Errorf("evaluate expression: %w", context.Cause(ctx))
}
