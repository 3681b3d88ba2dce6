package slicepatch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"weak"

	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/tollgate-dev/tollgate/policy"
)

const (
	// maxCost is the cost that all expressions which are evaluated on one device for one patch
	// may have together, in units of CEL: some 2 ms. It is 1/100 of what Kubernetes allows for
	// one expression of a claim, because a patch is evaluated on every device there is, and
	// some thousand times the cost of comparing a few attributes.
	maxCost = 10_000
	// maxSliceCost is the cost that they may have for all devices of a slice together, where
	// devices of which they read the same count once. It leaves 156 for each of 128 devices
	// that are all different; to compare a few attributes costs 5 to 20. What a patch costs
	// thus grows with the slices that there are, and no slice needs to know of others: the
	// same slice and patch lead to the same devices, whatever came before.
	maxSliceCost = 20_000
	// maxAnswers is the number of answers that an expression keeps. Devices are of few models,
	// and expressions seldom read a value that is different on each device.
	maxAnswers = 256
	// maxProblem is the number of bytes that are kept of why an expression failed.
	maxProblem = 256
)

// compile is a compiler for one combination of features, whatever else this process
// compiles for. Features are all on: a feature that a cluster does not have yet cannot occur in
// its devices.
var compile = sync.OnceValue(func() func(string, cel.Options) cel.CompilationResult {
	return cel.GetCompiler(cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}).CompileCELExpression
})

// expression is a compiled expression about a device. All selectors with the same text share it, in
// however many patches and classes they are, and with it its answers. It is safe for
// concurrent use.
type expression struct {
	program cel.CompilationResult
	reads   reads
	loops   loops

	mutex sync.Mutex
	// answers are by the key of the values that the expression reads of a device.
	answers map[string]*answer
}

// answer is the result of an expression for a device. It depends on the values that the expression reads
// of it and on nothing else.
type answer struct {
	matches bool
	// cost is the charge. For an expression that loops over a map that is the highest possible
	// cost: the real one is another number each time.
	cost uint64
	err  error
}

// expressions has a weak pointer to each expression that is in use, by its text to the letter: a text
// of the same meaning that is spelt otherwise may cost something else.
var expressions sync.Map

// expressionOf returns the expression of a text, or why it does not compile.
func expressionOf(text string) (*expression, error) {
	if pointer, ok := expressions.Load(text); ok {
		if e := pointer.(weak.Pointer[expression]).Value(); e != nil {
			return e, nil
		}
	}
	program := compile()(text, cel.Options{CostLimit: new(uint64(maxCost))})
	if program.Error != nil {
		return nil, readable(program.Error.Detail)
	}
	checked, issues := program.Environment.Compile(text)
	if issues.Err() != nil {
		return nil, readable(issues.Err().Error())
	}
	e := &expression{program: program, answers: map[string]*answer{}}
	e.reads, e.loops = analyze(checked)
	pointer := weak.Make(e)
	expressions.Store(text, pointer)
	runtime.AddCleanup(e, func(text string) { expressions.CompareAndDelete(text, pointer) }, text)
	return e, nil
}

// answer returns the result for a device. The key encodes the values that the expression reads.
func (e *expression) answer(key string, device func() *cel.Device) *answer {
	e.mutex.Lock()
	kept := e.answers[key]
	e.mutex.Unlock()
	if kept != nil {
		return kept
	}
	a := e.evaluate(device())
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if len(e.answers) >= maxAnswers {
		clear(e.answers)
	}
	e.answers[key] = a
	return a
}

func (e *expression) evaluate(device *cel.Device) *answer {
	//nolint:forbidigo // The cost ends it, and never a time: the result must not depend on how busy a machine is.
	matches, details, err := e.program.DeviceMatches(context.Background(), *device)
	a := &answer{matches: matches}
	switch {
	case e.loops.maps:
		a.cost = min(e.program.MaxCost, maxCost)
	case details != nil && details.ActualCost() != nil:
		a.cost = *details.ActualCost()
	}
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "cost limit exceeded"):
		a.err = errTooCostly
	default:
		a.err = readable(err.Error())
	}
	return a
}

// readable returns the first error of a message of CEL on one line, with its position
// and without the picture of where it is.
func readable(detail string) error {
	detail = strings.TrimPrefix(detail, "compilation failed: ")
	detail, _, _ = strings.Cut(detail, "\n |")
	if position, found := strings.CutPrefix(detail, "ERROR: <input>:"); found {
		if parts := strings.SplitN(position, ":", 3); len(parts) == 3 {
			detail = "line " + parts[0] + ", column " + parts[1] + ":" + parts[2]
		}
	}
	return errors.New(policy.Short(detail, maxProblem))
}

var errTooCostly = fmt.Errorf("costs more than the %d that all expressions of a patch may cost for a device", maxCost)

var errDisorder = errors.New("makes a list of what may be a map, whose order is not defined; use has(), in or a name")

// errGivenUp advises its reader, because the device is not the cause.
var errGivenUp = errors.New(fmt.Sprintf("given up: the devices of its slice that come before it by name cost the %d that all expressions of a patch may cost for a slice; ", maxSliceCost) +
	"name the driver and the pools in the filter, or give expressions that loop over less")
