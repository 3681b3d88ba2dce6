package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// outcome is how a spec ended.
type outcome string

const (
	passed outcome = "passes"
	failed outcome = "fails"
	// skipped is the outcome of a spec that found that it cannot run here.
	skipped outcome = "skips itself"
)

// result is what is known of a spec that ran.
type result struct {
	outcome outcome
	// message is why it did not pass.
	message string
	// flaky is true if it passed only when it was tried once more. Message is then why it failed before.
	flaky bool
}

// results are the outcomes of one control plane.
type results struct {
	// ran has the specs that ran, by their text.
	ran map[string]result
	// others are the texts of the specs that were not selected.
	others []string
}

// ginkgoReport is what is read of a report that ginkgo writes.
type ginkgoReport struct {
	SpecReports []ginkgoSpec
}

type ginkgoSpec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	NumAttempts             int
	Failure                 ginkgoFailure
	AdditionalFailures      []struct{ Failure ginkgoFailure }
}

type ginkgoFailure struct{ Message string }

// readReport reads the report of a suite that has ended.
func readReport(path string) (*results, error) {
	content, err := os.ReadFile(path) //nolint:gosec // The path is this program's own.
	if err != nil {
		return nil, fmt.Errorf("read report of the specs: %w", err)
	}
	var suites []ginkgoReport
	if err := json.Unmarshal(content, &suites); err != nil {
		return nil, fmt.Errorf("decode report of the specs: %w", err)
	}
	all := &results{ran: map[string]result{}}
	for _, suite := range suites {
		for i := range suite.SpecReports {
			if err := all.add(&suite.SpecReports[i]); err != nil {
				return nil, err
			}
		}
	}
	if len(all.ran) == 0 {
		return nil, errors.New("read report of the specs: none has run")
	}
	return all, nil
}

func (r *results) add(spec *ginkgoSpec) error {
	one := spec.result()
	if spec.LeafNodeType != "It" {
		if one.outcome != passed {
			return fmt.Errorf("%s of the suite %s: %s", spec.LeafNodeType, one.outcome, one.message)
		}
		return nil
	}
	text := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
	if spec.NumAttempts == 0 && one.outcome != failed {
		r.others = append(r.others, text)
		return nil
	}
	// Two specs may have the same text: the worse one counts.
	if before, ok := r.ran[text]; !ok || before.outcome == passed {
		r.ran[text] = one
	}
	return nil
}

func (s *ginkgoSpec) result() result {
	switch s.State {
	case "passed":
		one := result{outcome: passed, flaky: s.NumAttempts > 1}
		if one.flaky && len(s.AdditionalFailures) > 0 {
			one.message = line(s.AdditionalFailures[0].Failure.Message)
		}
		return one
	case "skipped", "pending":
		return result{outcome: skipped, message: line(s.Failure.Message)}
	default:
		return result{outcome: failed, message: line(s.State + ": " + s.Failure.Message)}
	}
}

// lineLength bounds what is shown of a failure, which may be a dump of objects.
const lineLength = 300

// line returns the beginning of a text in one line.
func line(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > lineLength {
		return string(runes[:lineLength]) + "..."
	}
	return text
}
