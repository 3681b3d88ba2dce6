package cel

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// prices are the costs of the functions that can take more time or memory than their
// arguments have bytes: a text in which each letter is replaced by a long one, a list
// that is flattened and holds another many times. The interpreter counts a call when
// it has been made, which for these is too late, so they are counted before.
var prices = map[string]func(args []ref.Val) uint64{
	"replace":               replacePrice,
	"join":                  joinPrice,
	"split":                 splitPrice,
	"format":                contentPrice,
	"flatten":               contentPrice,
	"distinct":              pairsPrice,
	"sets.contains":         pairsPrice,
	"sets.equivalent":       pairsPrice,
	"sets.intersects":       pairsPrice,
	"sort":                  sortPrice,
	"@sortByAssociatedKeys": sortPrice,
	"lists.range":           rangePrice,
	"slice":                 slicePrice,
	"reverse":               contentPrice,
	"indexOf":               contentPrice,
	"lastIndexOf":           contentPrice,
	"includes":              contentPrice,
	"isSorted":              contentPrice,
	"sum":                   contentPrice,
	"min":                   contentPrice,
	"max":                   contentPrice,
	"quantity":              quantityPrice,
	"isQuantity":            quantityPrice,
}

// bounded makes calls of functions with a price end an evaluation that cannot pay for
// them, as the interpreter itself does, and lets patterns be matched within bounds.
func bounded(env *cel.Env) interpreter.InterpretableDecoratorV2 {
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, ok := i.(interpreter.InterpretableCall)
		if !ok {
			return i, nil
		}
		if match, ok := matchers[call.Function()]; ok {
			return boundPattern(call, match)
		}
		switch call.Function() {
		case operators.Equals:
			return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), equal), nil
		case operators.NotEquals:
			return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), notEqual), nil
		case operators.In, operators.OldIn:
			return boundMembership(env, call)
		case operators.Add:
			if call.OverloadID() == overloads.AddList || call.OverloadID() == "" {
				return before(env, call, func(args []ref.Val) { afford(sumPrice(args)) })
			}
			return i, nil
		}
		price, ok := prices[call.Function()]
		if !ok {
			return i, nil
		}
		return before(env, call, func(args []ref.Val) { afford(price(args)) })
	}
}

// before returns a call that looks at its arguments first.
func before(env *cel.Env, call interpreter.InterpretableCall, look func(args []ref.Val)) (interpreter.InterpretableV2, error) {
	implementation, err := implementationOf(env, call)
	if implementation == nil || err != nil {
		return call, err
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
		look(args)
		return implementation(args...)
	}), nil
}

// readText is what the reading of a text is called in a plan.
const readText = boundedPrefix + "text"

// boundMembership lets a value be looked for in a list. Lists of constants become
// sets, in which it is found at once, and which cost nothing: there, it is the value
// that has to be paid for, as all of it is read.
func boundMembership(env *cel.Env, call interpreter.InterpretableCall) (interpreter.InterpretableV2, error) {
	args := call.Args()
	if _, ok := args[1].(interpreter.InterpretableConst); !ok || call.OverloadID() != overloads.InList {
		return before(env, call, func(args []ref.Val) { afford(membership(args)) })
	}
	if _, ok := args[0].(interpreter.InterpretableConst); ok {
		return call, nil
	}
	read := interpreter.NewCall(args[0].ID(), readText, "", args[:1:1], func(args ...ref.Val) ref.Val {
		afford(textCost(args[0]))
		return args[0]
	})
	implementation, err := implementationOf(env, call)
	if implementation == nil || err != nil {
		return call, err
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), []interpreter.InterpretableV2{read, args[1]}, implementation), nil
}

// equal compares two values, unless they are so large that it takes longer than an
// expression may.
func equal(args ...ref.Val) ref.Val {
	switch args[0].(type) {
	case traits.Mapper, traits.Lister, *types.Optional:
		afford(comparison(args))
	}
	return types.Equal(args[0], args[1])
}

func notEqual(args ...ref.Val) ref.Val {
	return types.Bool(equal(args...) != types.True)
}

// afford ends the evaluation if a call costs more than any expression may.
func afford(cost uint64) {
	if cost > costPerExpression {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: tooCostly})
	}
}

// implementationOf returns what a call would have called: what its overload does, or
// what the function does whatever it is given.
func implementationOf(env *cel.Env, call interpreter.InterpretableCall) (functions.FunctionOp, error) {
	bindings, err := env.Functions()[call.Function()].Bindings()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{call.OverloadID(), call.Function()} {
		for _, o := range bindings {
			if o.Operator == name {
				return apply(o), nil
			}
		}
	}
	return nil, nil
}

func apply(o *functions.Overload) functions.FunctionOp {
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
	}
}

func replacePrice(args []ref.Val) uint64 {
	text, old, with := textOf(args, 0), textOf(args, 1), textOf(args, 2)
	count := strings.Count(text, old)
	if most, ok := intOf(args, 3); ok && most >= 0 {
		count = min(count, most)
	}
	return 1 + perBytes(len(text)) + perBytes(len(text)+count*len(with))
}

func joinPrice(args []ref.Val) uint64 {
	return 1 + contentPrice(args[:1]) + times(units(sizeOf(args, 0)), perBytes(len(textOf(args, 1))))
}

func splitPrice(args []ref.Val) uint64 {
	text := textOf(args, 0)
	return 1 + perBytes(len(text)) + units(strings.Count(text, textOf(args, 1)))
}

// contentPrice is for what reads, or repeats, all that its arguments hold.
func contentPrice(args []ref.Val) uint64 {
	var cost uint64
	for _, arg := range args {
		cost += measure(arg, 2*costPerExpression)
	}
	return cost
}

// pairsPrice is for what compares each element of a list with each of another, or of
// the same.
func pairsPrice(args []ref.Val) uint64 {
	return 1 + times(units(sizeOf(args, 0)), measure(args[len(args)-1], costPerExpression))
}

func sortPrice(args []ref.Val) uint64 {
	return 1 + contentPrice(args)*units(bits.Len64(units(sizeOf(args, 0))))
}

func rangePrice(args []ref.Val) uint64 {
	length, _ := intOf(args, 0)
	return 1 + units(length)
}

func slicePrice(args []ref.Val) uint64 {
	from, _ := intOf(args, 1)
	to, _ := intOf(args, 2)
	return 1 + units(to-from)
}

// The largest quantity that is read. Beyond, a short text is a number of a billion
// digits, and comparing it ends with no context.
const (
	maxQuantityLength   = 64
	maxQuantityExponent = 100
)

func quantityPrice(args []ref.Val) uint64 {
	text := textOf(args, 0)
	if len(text) > maxQuantityLength {
		return 2 * costPerExpression
	}
	if e := strings.LastIndexAny(text, "eE"); e >= 0 {
		exponent, err := strconv.Atoi(text[e+1:])
		if errors.Is(err, strconv.ErrRange) || err == nil && max(exponent, -exponent) > maxQuantityExponent {
			return 2 * costPerExpression
		}
	}
	return 1 + perBytes(len(text))
}

// maxList is the number of elements that a list may have which is added up of others.
// It takes no memory, and can have more elements than there are numbers.
const maxList = 1 << 22

func sumPrice(args []ref.Val) uint64 {
	if units(sizeOf(args, 0))+units(sizeOf(args, 1)) > maxList {
		return 2 * costPerExpression
	}
	return 1
}

// times multiplies costs. What is too large to be counted is the largest there is.
func times(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	if high != 0 || low == math.MaxUint64 {
		return math.MaxUint64 / 2
	}
	return low
}

// textOf returns an argument that is text. Of another type it has no cost: the call
// fails.
func textOf(args []ref.Val, i int) string {
	if i >= len(args) {
		return ""
	}
	text, _ := args[i].(types.String)
	return string(text)
}

func intOf(args []ref.Val, i int) (int, bool) {
	if i >= len(args) {
		return 0, false
	}
	n, ok := args[i].(types.Int)
	return int(n), ok
}

func sizeOf(args []ref.Val, i int) int {
	list, ok := args[i].(traits.Lister)
	if !ok {
		return 0
	}
	size, _ := list.Size().(types.Int)
	return int(size)
}
