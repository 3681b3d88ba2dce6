package patching

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/tollgate-dev/tollgate/policy/wording"
)

// maxCost is what all expressions that are asked about one device for one patch may
// cost together, in units of CEL: some 2 ms. It is 1/100 of what Kubernetes allows for
// one expression of a claim, because a patch is asked about every device there is, and
// some thousand times what it costs to compare a few attributes.
const maxCost = 10_000

// maxProblem is up to how many bytes of why an expression failed are kept.
const maxProblem = 256

// compile is what compiles for one combination of features, whatever else this process
// compiles for. Features are all on: what a cluster does not have yet cannot occur in
// its devices.
var compile = sync.OnceValue(func() func(string, cel.Options) cel.CompilationResult {
	return cel.GetCompiler(cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}).CompileCELExpression
})

// selector is an expression about a device.
type selector struct {
	program cel.CompilationResult
	// problem is set if the expression does not compile. It then fails on every device.
	problem error
}

func newSelector(expression string) selector {
	program := compile()(expression, cel.Options{CostLimit: new(uint64(maxCost)), DisableCostEstimation: true})
	if program.Error != nil {
		return selector{problem: readable(program.Error.Detail)}
	}
	return selector{program: program}
}

// missing stands for a selector that selects by something that is not known here.
func missing() selector {
	return selector{problem: errors.New("selects by something other than cel")}
}

// estimate returns the most that an expression can cost.
func estimate(expression string) (uint64, error) {
	program := compile()(expression, cel.Options{})
	if program.Error != nil {
		return math.MaxUint64, readable(program.Error.Detail)
	}
	return program.MaxCost, nil
}

// selects reports whether all selectors select a device. Spent is what was paid for
// other expressions about it, and grows.
func selects(selectors []selector, device *cel.Device, spent *uint64) (bool, error) {
	for i := range selectors {
		selected, err := selectors[i].selects(device, spent)
		if err != nil {
			return false, fmt.Errorf("selectors[%d]: %w", i, err)
		}
		if !selected {
			return false, nil
		}
	}
	return true, nil
}

func (s *selector) selects(device *cel.Device, spent *uint64) (bool, error) {
	if s.problem != nil {
		return false, s.problem
	}
	//nolint:forbidigo // The cost ends it, and never a time: the result must not depend on how busy a machine is.
	selected, details, err := s.program.DeviceMatches(context.Background(), *device)
	if details != nil && details.ActualCost() != nil {
		*spent += *details.ActualCost()
	}
	switch {
	case err == nil && *spent <= maxCost:
		return selected, nil
	case err == nil, strings.Contains(err.Error(), "cost limit exceeded"):
		return false, fmt.Errorf("costs more than the %d that all expressions of a patch may cost for a device", maxCost)
	default:
		return false, readable(err.Error())
	}
}

// readable returns the first error of a message of CEL on one line, with its position
// and without the picture of where it is.
func readable(detail string) error {
	detail = strings.TrimPrefix(detail, "compilation failed: ")
	detail, _, _ = strings.Cut(detail, "\n |")
	if position, found := strings.CutPrefix(detail, "ERROR: <input>:"); found {
		parts := strings.SplitN(position, ":", 3)
		if len(parts) == 3 {
			detail = "line " + parts[0] + ", column " + parts[1] + ":" + parts[2]
		}
	}
	return errors.New(wording.Short(detail, maxProblem))
}

// deviceOf returns what an expression sees of a device.
func deviceOf(driver string, d *resourcev1.Device) *cel.Device {
	return &cel.Device{
		Driver: driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
	}
}
