package check

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy"
)

// The elements of a JUnit report, as CI systems read them.
type (
	junitSuites struct {
		junitCounts

		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		junitCounts

		Cases []junitCase `xml:"testcase"`
	}
	junitCounts struct {
		Name     string `xml:"name,attr"`
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Errors   int    `xml:"errors,attr"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		File    string        `xml:"file,attr,omitempty"`
		Line    int           `xml:"line,attr,omitempty"`
		Failure *junitProblem `xml:"failure,omitempty"`
		Error   *junitProblem `xml:"error,omitempty"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitProblem struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// writeJUnit writes a suite for each file and each PolicyTest, and a case for each object and each
// case of a test. Denied is a failure, undecided an error, and warnings are the output of the
// case.
func (r *Report) writeJUnit(w io.Writer) error {
	all := junitSuites{junitCounts: junitCounts{Name: "kubectl tollgate check"}}
	for _, result := range r.Results {
		c := junitCase{Class: cmp.Or(result.File, "cluster"), Name: result.String(), File: result.File, Line: result.Line}
		switch result.Verdict {
		case Denied:
			reason := result.Message
			if at := slices.IndexFunc(result.Findings, policy.Finding.Denies); at >= 0 {
				reason = lineOf(&result.Findings[at])
			}
			c.Failure = &junitProblem{reason, "denied", result.lines()}
		case Undecided:
			c.Error = &junitProblem{result.Message, "undecided", result.Message}
		case Warned, Allowed:
			c.Output = result.lines()
		}
		all.add(c)
	}
	for _, outcome := range r.Cases {
		c := junitCase{Class: outcome.Test, Name: outcome.Name, File: outcome.File, Line: outcome.Line}
		if outcome.Failure != "" {
			c.Failure = &junitProblem{outcome.Failure, "unexpected", outcome.Result.lines()}
		}
		all.add(c)
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	_, err := io.WriteString(w, xml.Header)
	if err == nil {
		err = encoder.Encode(all)
	}
	if err == nil {
		_, err = io.WriteString(w, "\n")
	}
	if err != nil {
		return fmt.Errorf("write JUnit: %w", err)
	}
	return nil
}

// add adds a case to the suite of its class, which is the last one or new.
func (s *junitSuites) add(c junitCase) {
	last := len(s.Suites) - 1
	if last < 0 || s.Suites[last].Name != c.Class {
		s.Suites = append(s.Suites, junitSuite{junitCounts: junitCounts{Name: c.Class}})
		last++
	}
	s.Suites[last].Cases = append(s.Suites[last].Cases, c)
	for _, counts := range []*junitCounts{&s.junitCounts, &s.Suites[last].junitCounts} {
		counts.Tests++
		if c.Failure != nil {
			counts.Failures++
		}
		if c.Error != nil {
			counts.Errors++
		}
	}
}

// lines returns the findings and warnings, a line for each.
func (r *Result) lines() string {
	var b strings.Builder
	for _, f := range r.Findings {
		b.WriteString(lineOf(&f) + "\n")
	}
	for _, warning := range r.Warnings {
		b.WriteString(warning + "\n")
	}
	return b.String()
}

// The part of SARIF 2.1.0 that a report uses.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    map[string]any `json:"tool"`
		Results []sarifResult  `json:"results"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical map[string]any      `json:"physicalLocation,omitempty"`
		Logical  []map[string]string `json:"logicalLocations"`
	}
	sarifText map[string]string
)

// writeSARIF writes a result for each finding, at the line where the document of the object
// begins. The rule is the violated policy, or the reason where there is none.
func (r *Report) writeSARIF(w io.Writer) error {
	descriptions, results := map[string]string{}, []sarifResult{}
	add := func(rule, description, level, message string, result *Result, at cli.Position) {
		descriptions[rule] = description
		location := sarifLocation{Logical: []map[string]string{{"fullyQualifiedName": result.String(), "kind": "resource"}}}
		if at.File != "" {
			// SARIF names a file relative to the working directory, with slashes.
			uri := "stdin"
			if at.File != cli.Stdin {
				uri = filepath.ToSlash(filepath.Clean(at.File))
			}
			location.Physical = map[string]any{
				"artifactLocation": map[string]string{"uri": uri}, "region": map[string]int{"startLine": max(at.Line, 1)},
			}
		}
		results = append(results, sarifResult{RuleID: rule, Level: level, Message: sarifText{"text": message}, Locations: []sarifLocation{location}})
	}
	for _, result := range r.Results {
		name := result.String() + ": "
		for _, f := range result.Findings {
			rule, description, level := f.Policy, "what "+f.Policy+" asks for", "note"
			if rule == "" {
				rule, description = string(f.Reason), "what holds without a policy: "+string(f.Reason)
			}
			switch {
			case f.Denies():
				level = "error"
			case f.Has(v1alpha1.Warn) || f.Reason == policy.MoreFindings:
				level = "warning"
			}
			add(rule, description, level, name+f.Field+": "+messageOf(&f), &result, result.Position)
		}
		for _, warning := range result.Warnings {
			add("Warning", "what is legal and probably not meant", "warning", name+warning, &result, result.Position)
		}
		if result.Verdict == Undecided {
			add("Undecided", "an object that could not be judged", "error", name+result.Message, &result, result.Position)
		}
	}
	for _, c := range r.Cases {
		if c.Failure != "" {
			add("Expectation", "a test of policies that does not come out as expected", "error", c.Failure, &c.Result, c.Position)
		}
	}
	ids := slices.Sorted(maps.Keys(descriptions))
	rules := make([]map[string]any, 0, len(ids))
	for _, id := range ids {
		rules = append(rules, map[string]any{"id": id, "shortDescription": sarifText{"text": descriptions[id]}})
	}
	for i, result := range results {
		results[i].RuleIndex, _ = slices.BinarySearch(ids, result.RuleID)
	}
	return cli.WriteDocument(w, "json", "  ", &sarifLog{
		Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0",
		Runs: []sarifRun{{map[string]any{"driver": map[string]any{"name": "tollgate", "rules": rules}}, results}},
	})
}
