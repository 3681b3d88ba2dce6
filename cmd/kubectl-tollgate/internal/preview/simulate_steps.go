package preview

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/tracker"
)

// step is a change of taints at a time after the beginning.
type step struct {
	at time.Duration
	// text is the step as the user wrote it, without the time.
	text string
	// target selects devices; nil for nodes, which selects reports.
	target  *Target
	selects func(*tracker.LabelledNode) bool
	changes Changes
}

const stepForm = "want TIME device DRIVER[/POOL[/DEVICE]] TAINT..., TIME nodes SELECTOR TAINT... or TIME node NAME... TAINT"

// parseStep parses a step, such as "60s nodes rack=7 example.com/hot:NoExecute".
func parseStep(text string) (step, error) {
	words := strings.Fields(text)
	if len(words) < 4 {
		return step{}, fmt.Errorf("step %q: %s", text, stepForm)
	}
	s := step{text: strings.Join(words[1:], " ")}
	var err error
	if s.at, err = time.ParseDuration(words[0]); err != nil || s.at < 0 {
		return step{}, fmt.Errorf("step %q: the time is %q, want a duration from 0s on, such as 90s or 1h", text, words[0])
	}
	rest, effects := words[2:], OfNodes
	switch kind := words[1]; kind {
	case "node":
		at := slices.IndexFunc(rest, IsTaint)
		if at <= 0 {
			err = errors.New(stepForm)
			break
		}
		names := rest[:at]
		s.selects = func(node *tracker.LabelledNode) bool { return slices.Contains(names, node.Name) }
		rest = rest[at:]
	case "nodes":
		var selector labels.Selector
		selector, err = labels.Parse(rest[0])
		s.selects = func(node *tracker.LabelledNode) bool { return selector.Matches(labels.Set(node.Labels.Map())) }
		rest = rest[1:]
	case "device":
		s.target, effects = &Target{}, OfDevices
		rest, err = s.target.Take(rest, IsTaint)
	default:
		err = fmt.Errorf("%q is no kind of object: %s", kind, stepForm)
	}
	if err == nil {
		s.changes, err = parse(rest, effects, false)
	}
	for _, taint := range s.changes.Remove {
		if s.target != nil && taint.Effect != "" && err == nil {
			err = fmt.Errorf("taint %q of a device: to remove it, want KEY- alone", taint)
		}
	}
	if err != nil {
		return step{}, fmt.Errorf("step %q: %w", text, err)
	}
	return s, nil
}

// readSteps returns the steps of a timeline, which has one in a line. Empty lines, and what follows
// a #, are ignored.
func readSteps(name string, timeline io.Reader) ([]step, error) {
	var steps []step
	lines := bufio.NewScanner(timeline)
	for line := 1; lines.Scan(); line++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		s, err := parseStep(text)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, line, err)
		}
		steps = append(steps, s)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return steps, nil
}
