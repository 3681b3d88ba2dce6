package cel

import (
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// boundedPrefix begins what calls that match a pattern are named in a plan, so that
// the interpreter does not put its own way of matching back. Their overload is the
// weight of the pattern, if that is constant.
const boundedPrefix = "bounded "

// perStep is the part of upstream's cost of reading a byte that is counted for each
// step of a pattern. Upstream takes a letter for a step; that (a{100}){10} is no
// short pattern is seen only when it is compiled.
const perStep = 0.25

// matchers are the functions that match patterns.
var matchers = map[string]func(pattern *regexp.Regexp, text string, args []ref.Val) ref.Val{
	"matches": func(pattern *regexp.Regexp, text string, _ []ref.Val) ref.Val {
		return types.Bool(pattern.MatchString(text))
	},
	"find": func(pattern *regexp.Regexp, text string, _ []ref.Val) ref.Val {
		return types.String(pattern.FindString(text))
	},
	"findAll": func(pattern *regexp.Regexp, text string, args []ref.Val) ref.Val {
		most := -1
		if len(args) > 2 {
			limit, ok := intOf(args, 2)
			if !ok {
				return types.MaybeNoSuchOverloadErr(args[2])
			}
			most = limit
		}
		return types.NewStringList(types.DefaultTypeAdapter, pattern.FindAllString(text, most))
	},
}

// boundPattern replaces a call that matches a pattern. A constant pattern is compiled
// here, once; that it makes no sense is an error then.
func boundPattern(call interpreter.InterpretableCall, match func(*regexp.Regexp, string, []ref.Val) ref.Val) (interpreter.InterpretableV2, error) {
	var constant *regexp.Regexp
	weight := 0
	if value, ok := call.Args()[1].(interpreter.InterpretableConst); ok {
		text, ok := value.Value().(types.String)
		if !ok {
			return call, nil
		}
		var err error
		if constant, weight, err = compilePattern(string(text)); err != nil {
			return nil, err
		}
	}
	overload := ""
	if constant != nil {
		overload = strconv.Itoa(weight)
	}
	name := call.Function()
	return interpreter.NewCall(call.ID(), boundedPrefix+name, overload, call.Args(), func(args ...ref.Val) ref.Val {
		text, ok := args[0].(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[0])
		}
		pattern, weight := constant, weight
		if pattern == nil {
			given, ok := args[1].(types.String)
			if !ok {
				return types.MaybeNoSuchOverloadErr(args[1])
			}
			afford(units(len(given)) * costOfStep)
			var err error
			if pattern, weight, err = compilePattern(string(given)); err != nil {
				return types.WrapErr(err)
			}
		}
		afford(matching(len(text), weight) + findings(name, len(text), args))
		return match(pattern, string(text), args)
	}), nil
}

// costOfStep is the cost of compiling one step of a pattern.
const costOfStep = 4

// compilePattern returns a pattern and its weight.
func compilePattern(text string) (*regexp.Regexp, int, error) {
	pattern, err := regexp.Compile(text)
	if err != nil {
		return nil, 0, fmt.Errorf("the pattern makes no sense: %w", err)
	}
	return pattern, weigh(text), nil
}

// weigh returns the number of steps of a pattern, at least one for each letter.
func weigh(text string) int {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return len(text)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return len(text)
	}
	return max(len(text), len(program.Inst))
}

// matching is the cost of matching a text of a length.
func matching(length, weight int) uint64 {
	return 1 + uint64(math.Ceil(float64(1+length)*perByte*float64(weight)*perStep))
}

// patternPrice is the cost of a call. Overload is the weight of a constant pattern.
func patternPrice(name, overload string, args []ref.Val) uint64 {
	length := len(textOf(args, 0))
	found := findings(name, length, args)
	if weight, err := strconv.Atoi(overload); err == nil {
		return matching(length, weight) + found
	}
	weight := weigh(textOf(args, 1))
	return units(weight)*costOfStep + matching(length, weight) + found
}

// findings is the most that findAll may find in a text of a length, unless it is told
// to look for less. The other functions find nothing, or once.
func findings(name string, length int, args []ref.Val) uint64 {
	if name != "findAll" {
		return 0
	}
	if most, ok := intOf(args, 2); ok && most >= 0 {
		return units(min(most, length+1))
	}
	return units(length + 1)
}
