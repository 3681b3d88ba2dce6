package cel

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
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

// bounded makes calls of functions with a price end an evaluation that cannot pay for
// them within a limit, as the interpreter itself does, and matches patterns within bounds.
func bounded(env *cel.Env, limit uint64) interpreter.InterpretableDecoratorV2 {
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, ok := i.(interpreter.InterpretableCall)
		if !ok {
			return i, nil
		}
		switch name := call.Function(); name {
		case "matches", "find", "findAll":
			return boundPattern(call, limit)
		case operators.Equals, operators.NotEquals:
			return newCall(call, name, call.Args(), func(args ...ref.Val) ref.Val {
				switch args[0].(type) {
				case traits.Mapper, traits.Lister, *types.Optional:
					afford(limit, comparisonPrice(args))
				}
				equal := types.Equal(args[0], args[1])
				if name == operators.NotEquals {
					return types.Bool(equal != types.True)
				}
				return equal
			}), nil
		case operators.In, operators.OldIn:
			return boundMembership(env, call, limit)
		case operators.Add:
			if call.OverloadID() == overloads.AddList || call.OverloadID() == "" {
				return payFirst(env, call, limit, sumPrice)
			}
			return i, nil
		default:
			if price, ok := prices[name]; ok {
				return payFirst(env, call, limit, price)
			}
			return i, nil
		}
	}
}

func newCall(call interpreter.InterpretableCall, name string, args []interpreter.InterpretableV2, do functions.FunctionOp) interpreter.InterpretableV2 {
	return interpreter.NewCall(call.ID(), name, call.OverloadID(), args, do)
}

// payFirst returns a call that ends the evaluation unless its price can be paid.
func payFirst(env *cel.Env, call interpreter.InterpretableCall, limit uint64, price func([]ref.Val) uint64) (interpreter.InterpretableV2, error) {
	do, err := implementationOf(env, call)
	if do == nil || err != nil {
		return call, err
	}
	return newCall(call, call.Function(), call.Args(), func(args ...ref.Val) ref.Val {
		afford(limit, price(args))
		return do(args...)
	}), nil
}

// afford ends the evaluation if a call costs more than all of it may.
func afford(limit, cost uint64) {
	if cost > limit {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: tooCostly})
	}
}

// boundMembership bounds the search of a value in a list. Lists of constants become
// sets, in which it is found at once, and which cost nothing: there, the cost is that of the
// value, as all of it is read.
func boundMembership(env *cel.Env, call interpreter.InterpretableCall, limit uint64) (interpreter.InterpretableV2, error) {
	args := call.Args()
	if _, ok := args[1].(interpreter.InterpretableConst); !ok || call.OverloadID() != overloads.InList {
		return payFirst(env, call, limit, membershipPrice)
	}
	do, err := implementationOf(env, call)
	if _, ok := args[0].(interpreter.InterpretableConst); ok || do == nil || err != nil {
		return call, err
	}
	value := interpreter.NewCall(args[0].ID(), readText, "", args[:1:1], func(args ...ref.Val) ref.Val {
		afford(limit, textPrice(args[0]))
		return args[0]
	})
	return newCall(call, call.Function(), []interpreter.InterpretableV2{value, args[1]}, do), nil
}

// implementationOf returns the implementation of a call: that of its overload, or
// that of the function for all arguments. It is nil for none.
func implementationOf(env *cel.Env, call interpreter.InterpretableCall) (functions.FunctionOp, error) {
	bindings, err := env.Functions()[call.Function()].Bindings()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{call.OverloadID(), call.Function()} {
		for _, o := range bindings {
			if o.Operator == name {
				return func(args ...ref.Val) ref.Val {
					switch {
					case len(args) == 1 && o.Unary != nil:
						return o.Unary(args[0])
					case len(args) == 2 && o.Binary != nil:
						return o.Binary(args[0], args[1])
					case o.Function != nil:
						return o.Function(args...)
					default:
						return types.NoSuchOverloadErr()
					}
				}, nil
			}
		}
	}
	return nil, nil
}

// boundPattern replaces a call that matches a pattern. A constant pattern is compiled
// here, once, and an error of it is one of the expression. The overload of such a call is
// its number of steps.
func boundPattern(call interpreter.InterpretableCall, limit uint64) (interpreter.InterpretableV2, error) {
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
		text, ok := args[0].(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[0])
		}
		pattern := constant
		if pattern == nil {
			source, ok := args[1].(types.String)
			if !ok {
				return types.MaybeNoSuchOverloadErr(args[1])
			}
			afford(limit, units(len(source))*costOfStep)
			var err error
			if pattern, err = compilePattern(string(source)); err != nil {
				return types.WrapErr(err)
			}
		}
		afford(limit, patternPrice(name, overload, args))
		return match(name, pattern, string(text), args)
	}), nil
}

func match(name string, pattern *regexp.Regexp, text string, args []ref.Val) ref.Val {
	switch name {
	case "matches":
		return types.Bool(pattern.MatchString(text))
	case "find":
		return types.String(pattern.FindString(text))
	}
	most := -1
	if len(args) > 2 {
		limit, ok := intOf(args, 2)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[2])
		}
		most = limit
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
