package cel

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// boundedPrefix begins the names that calls of our own have in a plan. The interpreter replaces
// calls that match a pattern by its function names, and would put its own way of matching back.
const boundedPrefix = "bounded "

// readText is the name in a plan of the call that reads a text.
const readText = boundedPrefix + "text"

// bounds are those of the plan of an expression: calls of functions with a price end an evaluation
// that cannot pay for them within a limit, as the interpreter itself does, and patterns are matched
// within bounds.
type bounds struct {
	env   *cel.Env
	limit uint64
}

// decorate implements interpreter.InterpretableDecoratorV2.
func (b bounds) decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	name, overload, args := call.Function(), call.OverloadID(), call.Args()
	price, priced := prices[name]
	switch name {
	case "matches", "find", "findAll":
		return b.pattern(call)
	case operators.Equals, operators.NotEquals:
		return interpreter.NewCall(call.ID(), name, overload, args, func(args ...ref.Val) ref.Val {
			switch args[0].(type) {
			case traits.Mapper, traits.Lister, *types.Optional:
				b.afford(price(args))
			}
			equal := types.Equal(args[0], args[1])
			if name == operators.NotEquals {
				return types.Bool(equal != types.True)
			}
			return equal
		}), nil
	case operators.In, operators.OldIn:
		// Lists of constants become sets, in which a value is found at once, and which cost nothing: there,
		// the cost is that of the value, as all of it is read.
		_, constantValue := args[0].(interpreter.InterpretableConst)
		_, constantList := args[1].(interpreter.InterpretableConst)
		if constantList && overload == overloads.InList {
			if constantValue {
				return call, nil
			}
			value := interpreter.NewCall(args[0].ID(), readText, "", []interpreter.InterpretableV2{args[0]}, func(args ...ref.Val) ref.Val {
				b.afford(textPrice(args[0]))
				return args[0]
			})
			args = []interpreter.InterpretableV2{value, args[1]}
		}
	case operators.Add:
		price, priced = sumPrice, overload == overloads.AddList || overload == ""
	}
	if priced {
		return b.payFirst(call, args, price), nil
	}
	return call, nil
}

// afford ends the evaluation if a call costs more than all of it may.
func (b bounds) afford(cost uint64) {
	if cost > b.limit {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: tooCostly})
	}
}

// payFirst returns a call with arguments that ends the evaluation unless its price can be paid. It
// calls the implementation of its overload, or that of the function for all arguments, which comes last.
func (b bounds) payFirst(call interpreter.InterpretableCall, args []interpreter.InterpretableV2, price func([]ref.Val) uint64) interpreter.InterpretableV2 {
	name, overload := call.Function(), call.OverloadID()
	bindings, _ := b.env.Functions()[name].Bindings() // an error would have ended the planning
	for _, do := range bindings {
		if do.Operator == overload || do.Operator == name {
			return interpreter.NewCall(call.ID(), name, overload, args, func(args ...ref.Val) ref.Val {
				b.afford(price(args))
				switch {
				case len(args) == 1 && do.Unary != nil:
					return do.Unary(args[0])
				case len(args) == 2 && do.Binary != nil:
					return do.Binary(args[0], args[1])
				default:
					return do.Function(args...)
				}
			})
		}
	}
	return call
}

// pattern replaces a call that matches a pattern. A constant pattern is compiled
// here, once, and an error of it is one of the expression. The overload of such a call is
// its number of steps.
func (b bounds) pattern(call interpreter.InterpretableCall) (interpreter.InterpretableV2, error) {
	var constant *regexp.Regexp
	overload := ""
	if value, ok := call.Args()[1].(interpreter.InterpretableConst); ok {
		text, ok := value.Value().(types.String)
		if !ok {
			return call, nil
		}
		var err error
		if constant, err = compilePattern(string(text)); err != nil {
			return nil, err
		}
		overload = strconv.Itoa(stepsOf(string(text)))
	}
	name := call.Function()
	return interpreter.NewCall(call.ID(), boundedPrefix+name, overload, call.Args(), func(args ...ref.Val) ref.Val {
		for _, arg := range args[:2] {
			if _, ok := arg.(types.String); !ok {
				return types.MaybeNoSuchOverloadErr(arg)
			}
		}
		pattern := constant
		if pattern == nil {
			source := textOf(args, 1)
			b.afford(units(len(source)) * costOfStep)
			var err error
			if pattern, err = compilePattern(source); err != nil {
				return types.WrapErr(err)
			}
		}
		b.afford(patternPrice(name, overload, args))
		return match(name, pattern, args)
	}), nil
}

func match(name string, pattern *regexp.Regexp, args []ref.Val) ref.Val {
	text := textOf(args, 0)
	switch name {
	case "matches":
		return types.Bool(pattern.MatchString(text))
	case "find":
		return types.String(pattern.FindString(text))
	}
	most := -1
	if len(args) > 2 {
		var ok bool
		if most, ok = intOf(args, 2); !ok {
			return types.MaybeNoSuchOverloadErr(args[2])
		}
	}
	return types.NewStringList(types.DefaultTypeAdapter, pattern.FindAllString(text, most))
}

func compilePattern(text string) (*regexp.Regexp, error) {
	pattern, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("the pattern makes no sense: %w", err)
	}
	return pattern, nil
}

// stepsOf returns the number of steps of a pattern, at least one for each letter.
func stepsOf(text string) int {
	if parsed, err := syntax.Parse(text, syntax.Perl); err == nil {
		if program, err := syntax.Compile(parsed.Simplify()); err == nil {
			return max(len(text), len(program.Inst))
		}
	}
	return len(text)
}
