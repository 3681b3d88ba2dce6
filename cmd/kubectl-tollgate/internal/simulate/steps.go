package simulate

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/preview"
	"github.com/tollgate-dev/tollgate/tracker"
)

// step is a change of taints at a time after the beginning.
type step struct {
	at time.Duration
	// text is the step as the user wrote it, without the time.
	text string
	// names or selector select nodes, unless target selects devices.
	names    []string
	selector labels.Selector
	target   *preview.Target
	changes  preview.Changes
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
	kind, rest := words[1], words[2:]
	switch kind {
	case "node":
		err = s.parseNodes(rest)
	case "nodes":
		if s.selector, err = labels.Parse(rest[0]); err == nil {
			s.changes, err = preview.Parse(rest[1:], preview.OfNodes)
		}
	case "device":
		err = s.parseDevices(rest)
	default:
		err = fmt.Errorf("%q is no kind of object: %s", kind, stepForm)
	}
	if err != nil {
		return step{}, fmt.Errorf("step %q: %w", text, err)
	}
	return s, nil
}

func (s *step) parseNodes(words []string) (err error) {
	at := slices.IndexFunc(words, preview.IsTaint)
	if at <= 0 {
		return errors.New(stepForm)
	}
	s.names = words[:at]
	s.changes, err = preview.Parse(words[at:], preview.OfNodes)
	return err
}

func (s *step) parseDevices(words []string) error {
	s.target = &preview.Target{}
	rest, err := s.target.Take(words, preview.IsTaint)
	if err != nil {
		return err
	}
	if s.changes, err = preview.Parse(rest, preview.OfDevices); err != nil {
		return err
	}
	for _, taint := range s.changes.Remove {
		if taint.Effect == "" {
			continue
		}
		return fmt.Errorf("taint %q of a device: to remove it, want KEY- alone", taint)
	}
	return nil
}

// selects reports whether the step selects a node.
func (s *step) selects(node *tracker.LabelledNode) bool {
	if s.selector != nil {
		return s.selector.Matches(labels.Set(node.Labels.Map()))
	}
	return slices.Contains(s.names, node.Name)
}

// readSteps returns the steps of a timeline, which has one in a line. Empty lines, and what follows
// a #, are ignored.
func readSteps(name string, timeline io.Reader) ([]step, error) {
	var steps []step
	lines := bufio.NewScanner(timeline)
	for line := 1; lines.Scan(); line++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(text) == "" {
			continue
		}
		s, err := parseStep(strings.TrimSpace(text))
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

// ordered sorts steps by their times. Steps of the same time stay in order.
func ordered(steps []step) []step {
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return steps
}
