package check

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/tollgate-dev/tollgate/policy"
)

// The parts of SARIF 2.1.0 that are written, of those that its schema has.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID          string       `json:"id"`
		Description sarifMessage `json:"shortDescription"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifMessage    `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
)

// The rules of what comes of no policy.
const (
	ruleWarning   = "Warning"
	ruleUndecided = "Undecided"
	ruleCase      = "Expectation"
)

// WriteSARIF writes a report as SARIF 2.1.0: a result for each finding, at the line where the
// reportDocument of the object begins. The rule is the policy that is violated, or the reason where
// there is none. An error is that of the writer.
func (r *Report) WriteSARIF(w io.Writer) error {
	s := &sarif{rules: map[string]string{}, results: []sarifResult{}}
	for i := range r.Results {
		s.addResult(&r.Results[i], r.Results[i].Position)
	}
	for i := range r.Cases {
		if c := &r.Cases[i]; c.Failure != "" {
			s.add(ruleCase, "a test of policies that does not come out as expected", "error", c.Failure, &c.Result, c.Position)
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s.log()); err != nil {
		return fmt.Errorf("write SARIF: %w", err)
	}
	return nil
}

type sarif struct {
	// rules are descriptions by ID.
	rules   map[string]string
	results []sarifResult
}

func (s *sarif) addResult(result *Result, at Position) {
	for i := range result.Findings {
		f := &result.Findings[i]
		id, description := f.Policy, "what "+f.Policy+" asks for"
		if id == "" {
			id, description = string(f.Reason), "what holds without a policy: "+string(f.Reason)
		}
		s.add(id, description, levelOf(f), result.String()+": "+f.Field+": "+f.Message(), result, at)
	}
	for _, warning := range result.Warnings {
		s.add(ruleWarning, "what is legal and probably not meant", "warning", result.String()+": "+warning, result, at)
	}
	if result.Verdict == Undecided {
		s.add(ruleUndecided, "an object that could not be judged", "error", result.String()+": "+result.Message, result, at)
	}
}

func levelOf(f *Finding) string {
	switch {
	case f.Denies():
		return "error"
	case f.Warns() || f.Reason == policy.MoreFindings:
		return "warning"
	default:
		return "note"
	}
}

func (s *sarif) add(id, description, level, message string, result *Result, at Position) {
	s.rules[id] = description
	location := sarifLocation{Logical: []sarifLogical{{result.String(), "resource"}}}
	if at.File != "" {
		location.Physical = &sarifPhysical{sarifArtifact{uri(at.File)}, sarifRegion{max(at.Line, 1)}}
	}
	s.results = append(s.results, sarifResult{RuleID: id, Level: level, Message: sarifMessage{message}, Locations: []sarifLocation{location}})
}

// uri returns a file as SARIF names it: relative to where the check runs, with slashes.
func uri(file string) string {
	if file == Stdin {
		return "stdin"
	}
	return filepath.ToSlash(filepath.Clean(file))
}

// log returns what was added, with the rules sorted.
func (s *sarif) log() *sarifLog {
	ids := slices.Sorted(maps.Keys(s.rules))
	rules := make([]sarifRule, 0, len(ids))
	for _, id := range ids {
		rules = append(rules, sarifRule{id, sarifMessage{s.rules[id]}})
	}
	for i := range s.results {
		s.results[i].RuleIndex, _ = slices.BinarySearch(ids, s.results[i].RuleID)
	}
	return &sarifLog{
		Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0",
		Runs: []sarifRun{{sarifTool{sarifDriver{"tollgate", rules}}, s.results}},
	}
}
