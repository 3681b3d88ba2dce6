package slicepatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"weak"

	"k8s.io/dynamic-resource-allocation/cel"
)

// maxKnown is how many answers an expression keeps. Devices are of few models, and what
// tells each from all others is seldom asked for.
const maxKnown = 256

// compile is what compiles for one combination of features, whatever else this process
// compiles for. Features are all on: what a cluster does not have yet cannot occur in
// its devices.
var compile = sync.OnceValue(func() func(string, cel.Options) cel.CompilationResult {
	return cel.GetCompiler(cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}).CompileCELExpression
})

// expression is one about devices. All selectors with the same text share it, in however
// many patches and classes they are, and with it what was answered. It is safe for
// concurrent use.
type expression struct {
	program cel.CompilationResult
	reads   reads
	loops   loops

	mutex sync.Mutex
	// known are answers by what the expression reads of a device.
	known map[string]*answer
}

// answer is what an expression says of a device. It depends on what the expression reads
// of it and on nothing else.
type answer struct {
	yes bool
	// cost is what is charged. For an expression that loops over a map that is the most
	// that it can cost: what it does cost is another number each time.
	cost uint64
	err  error
}

// expressions are those that are in use by their text, to the letter: what means the same
// and is spelt otherwise may cost something else.
var expressions = struct {
	mutex  sync.Mutex
	byText map[string]weak.Pointer[expression]
}{byText: map[string]weak.Pointer[expression]{}}

// expressionOf returns the expression that a text is, or why it does not compile.
func expressionOf(text string) (*expression, error) {
	if e := inUse(text); e != nil {
		return e, nil
	}
	program := compile()(text, cel.Options{CostLimit: new(uint64(maxCost))})
	if program.Error != nil {
		return nil, readable(program.Error.Detail)
	}
	parsed, issues := program.Environment.Compile(text)
	if issues.Err() != nil {
		return nil, readable(issues.Err().Error())
	}
	return use(text, &expression{program: program, reads: readsOf(parsed), loops: loopsOf(parsed), known: map[string]*answer{}}), nil
}

func inUse(text string) *expression {
	expressions.mutex.Lock()
	defer expressions.mutex.Unlock()
	return expressions.byText[text].Value()
}

// use returns the expression that is in use with the text, and else puts this one there
// until nobody has it any more.
func use(text string, e *expression) *expression {
	expressions.mutex.Lock()
	defer expressions.mutex.Unlock()
	if other := expressions.byText[text].Value(); other != nil {
		return other
	}
	expressions.byText[text] = weak.Make(e)
	runtime.AddCleanup(e, disuse, text)
	return e
}

func disuse(text string) {
	expressions.mutex.Lock()
	defer expressions.mutex.Unlock()
	if expressions.byText[text].Value() == nil {
		delete(expressions.byText, text)
	}
}

// estimate returns the most that an expression can cost, or why a patch may not have it.
func estimate(text string) (uint64, error) {
	e, err := expressionOf(text)
	if err != nil {
		return math.MaxUint64, err
	}
	if e.loops.lists {
		return math.MaxUint64, errDisorder
	}
	return e.program.MaxCost, nil
}

// ask returns what the expression says of a device whose reading has a key.
func (e *expression) ask(key string, device func() *cel.Device) *answer {
	e.mutex.Lock()
	known := e.known[key]
	e.mutex.Unlock()
	if known != nil {
		return known
	}
	given := e.evaluate(device())
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if len(e.known) >= maxKnown {
		clear(e.known)
	}
	e.known[key] = given
	return given
}

func (e *expression) evaluate(device *cel.Device) *answer {
	//nolint:forbidigo // The cost ends it, and never a time: the result must not depend on how busy a machine is.
	yes, details, err := e.program.DeviceMatches(context.Background(), *device)
	given := &answer{yes: yes, err: err}
	switch {
	case e.loops.maps:
		given.cost = min(e.program.MaxCost, maxCost)
	case details != nil && details.ActualCost() != nil:
		given.cost = *details.ActualCost()
	}
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "cost limit exceeded"):
		given.err = errTooCostly
	default:
		given.err = readable(err.Error())
	}
	return given
}

var errTooCostly = fmt.Errorf("costs more than the %d that all expressions of a patch may cost for a device", maxCost)

var errDisorder = errors.New("makes a list of what may be a map, whose order is not defined; use has(), in or a name")

// errGivenUp says what to do, because the device has done nothing wrong.
var errGivenUp = errors.New(fmt.Sprintf("given up: the devices of its slice that come before it by name cost the %d that all expressions of a patch may cost for a slice; ", maxSliceCost) +
	"name the driver and the pools in the filter, or give expressions that loop over less")
