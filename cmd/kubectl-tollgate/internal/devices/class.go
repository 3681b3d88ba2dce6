package devices

import (
	"context"
	"errors"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// class selects devices by the DeviceClass of the filter, with the cost limit of classes in
// Kubernetes, which is above that of patches.
type class struct {
	selectors []selector
	// failed is the number of devices on which an expression failed, problem the first error.
	failed  int
	first   device.ID
	problem string
}

// selector is a compiled expression, or its error.
type selector struct {
	program cel.CompilationResult
	problem error
}

func compileClass(set *resourcev1.DeviceClass) *class {
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true})
	c := &class{}
	for i := range set.Spec.Selectors {
		s := selector{problem: errors.New("selects by something other than cel")}
		if in := set.Spec.Selectors[i].CEL; in != nil {
			s = selector{program: compiler.CompileCELExpression(in.Expression, cel.Options{DisableCostEstimation: true})}
			if s.program.Error != nil {
				s.problem = errors.New(s.program.Error.Detail)
			}
		}
		c.selectors = append(c.selectors, s)
	}
	return c
}

// forget resets the count.
func (c *class) forget() { c.failed = 0 }

func (c *class) selects(d *Device) bool {
	seen := cel.Device{
		Driver: d.Device.Driver, AllowMultipleAllocations: d.Spec.AllowMultipleAllocations, Attributes: d.Spec.Attributes, Capacity: d.Spec.Capacity,
	}
	for i := range c.selectors {
		selected, err := c.selectors[i].matches(seen)
		if err != nil {
			if c.failed == 0 {
				c.first, c.problem = d.Device, problem(err)
			}
			c.failed++
		}
		if err != nil || !selected {
			return false
		}
	}
	return true
}

func (s *selector) matches(d cel.Device) (bool, error) {
	if s.problem != nil {
		return false, s.problem
	}
	selected, _, err := s.program.DeviceMatches(context.Background(), d) // It ends by its cost.
	return selected, err
}

// problem returns the first line of an evaluation error.
func problem(err error) string {
	const longest = 256
	line, _, _ := strings.Cut(err.Error(), "\n")
	return policy.Short(line, longest)
}
