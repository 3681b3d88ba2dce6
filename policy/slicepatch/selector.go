package slicepatch

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tollgate-dev/tollgate/policy"
)

const (
	// maxCost is what all expressions that are asked about one device for one patch may
	// cost together, in units of CEL: some 2 ms. It is 1/100 of what Kubernetes allows for
	// one expression of a claim, because a patch is asked about every device there is, and
	// some thousand times what it costs to compare a few attributes.
	maxCost = 10_000
	// maxSliceCost is what they may cost for all devices of a slice together, where
	// devices of which they read the same count once. It leaves 156 for each of 128 devices
	// that are all different; to compare a few attributes costs 5 to 20. What a patch costs
	// thus grows with the slices that there are, and no slice needs to know of others: the
	// same slice and patch lead to the same devices, whatever came before.
	maxSliceCost = 20_000
)

// maxProblem is up to how many bytes of why an expression failed are kept.
const maxProblem = 256

// selector is an expression about a device.
type selector struct {
	*expression

	// problem is set if the expression does not compile. It then fails on every device.
	problem error
}

func newSelector(text string) selector {
	e, err := expressionOf(text)
	return selector{expression: e, problem: err}
}

// newSelectors compiles selectors.
func newSelectors[S any](list []S, cel func(*S) *string) []selector {
	var selectors []selector
	for i := range list {
		if text := cel(&list[i]); text != nil {
			selectors = append(selectors, newSelector(*text))
		} else {
			selectors = append(selectors, selector{problem: errors.New("selects by something other than cel")})
		}
	}
	return selectors
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
	return errors.New(policy.Short(detail, maxProblem))
}

// asking puts the selectors of a class and of a filter to devices of one slice.
type asking struct {
	devices *Devices
	// class is the name of the class that has the first selectors.
	class     string
	ofClass   int
	selectors []selector
	// put is what is known of each selector so far.
	put []putting
	// spent was paid for the answers.
	spent uint64
}

// putting is one selector and what came of it.
type putting struct {
	readings *readings
	// given are the answers by group of the readings.
	given []*answer
}

// satisfied asks about the device at a position.
func (a *asking) satisfied(at int) (bool, error) {
	spent := uint64(0)
	for i := range a.selectors {
		yes, err := a.ask(i, at, &spent)
		switch {
		case err != nil && i < a.ofClass:
			return false, fmt.Errorf("device class %s: selectors[%d]: %w", policy.Short(a.class, policy.MaxKeyLength), i, err)
		case err != nil:
			return false, fmt.Errorf("selectors[%d]: %w", i-a.ofClass, err)
		case !yes:
			return false, nil
		}
	}
	return true, nil
}

// ask puts one selector. Spent was paid for the selectors before it about the device.
func (a *asking) ask(i, at int, spent *uint64) (bool, error) {
	s := &a.selectors[i]
	if s.problem != nil {
		return false, s.problem
	}
	p := &a.put[i]
	if p.readings == nil {
		p.readings = a.devices.readings(&s.reads)
	}
	group := p.readings.group(a.devices, at)
	for len(p.given) <= group {
		p.given = append(p.given, nil)
	}
	given := p.given[group]
	if given == nil {
		if a.spent >= maxSliceCost {
			return false, errGivenUp
		}
		given = s.ask(p.readings.keys[group], func() *device { return a.devices.device(&s.reads, at) })
		p.given[group] = given
		a.spent += given.cost
	}
	*spent += given.cost
	if given.err == nil && *spent > maxCost {
		return false, errTooCostly
	}
	return given.yes, given.err
}

// newAsking returns what asks about devices for a filter and its class.
func newAsking(f *Filter, class *Class, devices *Devices) *asking {
	a := &asking{devices: devices, class: f.Class, selectors: f.selectors}
	if class != nil && len(class.selectors) > 0 {
		a.ofClass = len(class.selectors)
		a.selectors = append(append(make([]selector, 0, a.ofClass+len(f.selectors)), class.selectors...), f.selectors...)
	}
	a.put = make([]putting, len(a.selectors))
	return a
}
