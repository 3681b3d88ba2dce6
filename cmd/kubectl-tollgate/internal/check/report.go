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

	"gomodules.xyz/jsonpatch/v2"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy"
)

// Verdict is the result for an object.
type Verdict string

// The verdicts.
const (
	Allowed Verdict = "allowed"
	// Warned is allowed with warnings.
	Warned Verdict = "warned"
	Denied Verdict = "denied"
	// Undecided is the verdict on an object that cannot be judged without a cluster, or that cannot
	// be decoded.
	Undecided Verdict = "undecided"
)

// messageOf returns the text of a finding, without the policy and the field.
func messageOf(f *policy.Finding) string {
	text := f.Problem
	if f.Value != "" {
		text = f.Value + ": " + text
	}
	if f.Remedy != "" {
		text += "; " + f.Remedy
	}
	return text
}

// headOf returns the policy of a finding, if any, and the field.
func headOf(f *policy.Finding) string { return strings.TrimPrefix(f.Policy+": ", ": ") + f.Field }

// lineOf returns a finding in one line.
func lineOf(f *policy.Finding) string { return headOf(f) + ": " + messageOf(f) }

// Result is the judgement of one object.
type Result struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`

	Verdict  Verdict          `json:"verdict"`
	Findings []policy.Finding `json:"findings,omitempty"`
	// Warnings are the warnings without a finding.
	Warnings []string `json:"warnings,omitempty"`
	// Message is the refusal of the API server, or the reason why there is no verdict.
	Message string `json:"message,omitempty"`
	// Given are the changes of mutating admission, in order.
	Given []jsonpatch.Operation `json:"given,omitempty"`

	// Position is zero for objects in a cluster, and for those of PolicyTests.
	cli.Position `json:",inline"` //nolint:embeddedstructfieldcheck // JSON has its fields last.
}

// String returns the name of the object as kubectl has it: Kind and namespace/name.
func (r *Result) String() string {
	return r.Kind + " " + strings.TrimPrefix(r.Namespace+"/"+r.Name, "/")
}

// conclude sets the verdict from the findings and the answer of admission.
func (r *Result) conclude(allowed bool) {
	switch {
	case !allowed:
		r.Verdict = Denied
	case len(r.Warnings) > 0 || slices.ContainsFunc(r.Findings, func(f policy.Finding) bool { return f.Has(v1alpha1.Warn) }):
		r.Verdict = Warned
	default:
		r.Verdict = Allowed
	}
}

// Report is the result of a command.
type Report struct {
	// By is the user who creates the objects; empty for objects of a cluster or of tests.
	By string `json:"by,omitempty"`
	// Policies is the number of policies. Skipped is the number of objects of kinds that are not
	// judged, or in namespaces that are exempt.
	Policies int `json:"policies"`
	Skipped  int `json:"skipped"`
	// Unlisted is the number of allowed objects that are not among the results.
	Unlisted int `json:"unlisted,omitempty"`
	// Notes describe the unknown data that the verdicts depend on.
	Notes []string `json:"notes,omitempty"`
	// Results are the results for objects, and Cases those of PolicyTests. There may be both.
	Results []Result       `json:"results"`
	Cases   []ReportedCase `json:"cases,omitempty"`
	Summary Summary        `json:"summary"`
}

// note adds notes.
func (r *Report) note(notes ...string) { r.Notes = append(r.Notes, notes...) }

// Summary counts objects by verdict, and the cases that failed.
type Summary struct {
	Allowed   int `json:"allowed"`
	Warned    int `json:"warned"`
	Denied    int `json:"denied"`
	Undecided int `json:"undecided"`
	Failed    int `json:"failed"`
}

// ReportedCase is the outcome of one case of a PolicyTest.
type ReportedCase struct {
	// Test is the name of the test, Name that of the case.
	Test string `json:"test"`
	Name string `json:"name"`
	// Result is the actual result. Failure describes how it differs from the expected one; it is
	// empty for a case that passed.
	Result  Result `json:"result"`
	Failure string `json:"failure,omitempty"`

	cli.Position `json:",inline"` //nolint:embeddedstructfieldcheck // JSON has its fields last.
}

// summarize sets the summary.
func (r *Report) summarize() {
	verdicts := map[Verdict]int{Allowed: r.Unlisted}
	for _, result := range r.Results {
		verdicts[result.Verdict]++
	}
	r.Summary = Summary{verdicts[Allowed], verdicts[Warned], verdicts[Denied], verdicts[Undecided], 0}
	for _, c := range r.Cases {
		if c.Failure != "" {
			r.Summary.Failed++
		}
	}
}

// String returns the summary in a line.
func (r *Report) String() string {
	var parts []string
	if judged := len(r.Results) + r.Unlisted; judged+r.Skipped > 0 || len(r.Cases) == 0 {
		var verdicts []string
		for _, v := range []struct {
			count int
			words string
		}{
			{r.Summary.Allowed, "allowed"},
			{r.Summary.Warned, "allowed with warnings"},
			{r.Summary.Denied, "denied"},
			{r.Summary.Undecided, "undecided"},
		} {
			if v.count > 0 {
				verdicts = append(verdicts, fmt.Sprintf("%d %s", v.count, v.words))
			}
		}
		text := fmt.Sprintf("%s judged by %d %s", cli.Counted(judged, "object"), r.Policies, cli.Plural(r.Policies, "policy", "policies"))
		if len(verdicts) > 0 {
			text += ": " + strings.Join(verdicts, ", ")
		}
		if r.Skipped > 0 {
			text += fmt.Sprintf("; %d not judged", r.Skipped)
		}
		parts = append(parts, text)
	}
	if failed := r.Summary.Failed; len(r.Cases) > 0 {
		parts = append(parts, fmt.Sprintf("%s: %d passed, %d failed", cli.Counted(len(r.Cases), "case"), len(r.Cases)-failed, failed))
	}
	return strings.Join(parts, "; ")
}

// Write writes the report in a format of the command. Text has colours where cli.Colours
// says so. An error is that of the writer.
func (r *Report) Write(w io.Writer, format string) error {
	switch {
	case cli.IsDocument(format):
		return cli.Print(w, format, r)
	case format == "junit":
		return r.writeJUnit(w)
	case format == "sarif":
		return r.writeSARIF(w)
	default:
		return r.writeText(w, format == "wide", cli.Colours(w))
	}
}

const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	green  = "\x1b[32m"
	plain  = "\x1b[0m"
)

// colours are the colours of verdicts on objects and on cases.
var colours = map[string]string{
	"denied": red, "undecided": red, "failed": red, "warned": yellow, "allowed": green, "passed": green,
}

// writeText writes lines of at most cli.Width characters where words allow. All includes the
// objects that are simply allowed, and the cases that passed.
func (r *Report) writeText(w io.Writer, all, colour bool) error {
	var out strings.Builder
	head := func(at, verdict string) {
		if colour {
			verdict = colours[verdict] + verdict + plain
		}
		out.WriteString(at + ": " + verdict + "\n")
	}
	for _, result := range r.Results {
		if !all && result.Verdict == Allowed {
			continue
		}
		at := result.String()
		if result.File != "" {
			at = result.Position.String() + ": " + at
		}
		head(at, string(result.Verdict))
		result.explain(&out)
	}
	for _, c := range r.Cases {
		at := c.String() + ": " + c.Test + ": " + c.Name
		switch {
		case c.Failure != "":
			head(at, "failed")
			out.WriteString(cli.Wrap(2, c.Failure))
			c.Result.explain(&out)
		case all:
			head(at, "passed")
		}
	}
	out.WriteString(cli.Wrap(0, r.String()))
	_, err := io.WriteString(w, out.String())
	return err
}

// explain writes the findings and warnings.
func (r *Result) explain(out *strings.Builder) {
	for _, f := range r.Findings {
		head := headOf(&f)
		switch {
		case f.Denies():
		case f.Has(v1alpha1.Warn):
			head = "warning: " + head
		default:
			head = "audit: " + head
		}
		out.WriteString(cli.Wrap(2, head) + cli.Wrap(4, messageOf(&f)))
	}
	for _, warning := range r.Warnings {
		out.WriteString(cli.Wrap(2, "warning: "+warning))
	}
	if r.Verdict == Undecided {
		out.WriteString(cli.Wrap(2, r.Message))
	}
}

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
	text, err := xml.MarshalIndent(all, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
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
	var lines []string
	for _, f := range r.Findings {
		lines = append(lines, lineOf(&f)+"\n")
	}
	for _, warning := range r.Warnings {
		lines = append(lines, warning+"\n")
	}
	return strings.Join(lines, "")
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
		Message   sarifTexts      `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical map[string]any `json:"physicalLocation,omitempty"`
		Logical  []sarifTexts   `json:"logicalLocations"`
	}
	sarifTexts map[string]string
)

// writeSARIF writes a result for each finding, at the line where the document of the object
// begins. The rule is the violated policy, or the reason where there is none.
func (r *Report) writeSARIF(w io.Writer) error {
	descriptions, results := map[string]string{}, []sarifResult{}
	add := func(result *Result, rule, description, level, message string) {
		descriptions[rule] = description
		location := sarifLocation{Logical: []sarifTexts{{"fullyQualifiedName": result.String(), "kind": "resource"}}}
		if result.File != "" {
			// SARIF names a file relative to the working directory, with slashes.
			uri := "stdin"
			if result.File != cli.Stdin {
				uri = filepath.ToSlash(filepath.Clean(result.File))
			}
			location.Physical = map[string]any{
				"artifactLocation": sarifTexts{"uri": uri}, "region": map[string]int{"startLine": result.Line},
			}
		}
		results = append(results, sarifResult{RuleID: rule, Level: level, Message: sarifTexts{"text": message}, Locations: []sarifLocation{location}})
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
			add(&result, rule, description, level, name+f.Field+": "+messageOf(&f))
		}
		for _, warning := range result.Warnings {
			add(&result, "Warning", "what is legal and probably not meant", "warning", name+warning)
		}
		if result.Verdict == Undecided {
			add(&result, "Undecided", "an object that could not be judged", "error", name+result.Message)
		}
	}
	for _, c := range r.Cases {
		if c.Failure != "" {
			c.Result.Position = c.Position
			add(&c.Result, "Expectation", "a test of policies that does not come out as expected", "error", c.Failure)
		}
	}
	ids := slices.Sorted(maps.Keys(descriptions))
	rules := []map[string]any{}
	for _, id := range ids {
		rules = append(rules, map[string]any{"id": id, "shortDescription": sarifTexts{"text": descriptions[id]}})
	}
	for i, result := range results {
		results[i].RuleIndex, _ = slices.BinarySearch(ids, result.RuleID)
	}
	return cli.Print(w, "json", &sarifLog{
		Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0",
		Runs: []sarifRun{{map[string]any{"driver": map[string]any{"name": "tollgate", "rules": rules}}, results}},
	})
}
