package check

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// The elements of JUnit's report, as CI systems read them.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Cases    []junitCase `xml:"testcase"`
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

// WriteJUnit writes a report as JUnit does: a suite for each file and each test, a case for
// each object and each expectation. Denied is a failure, undecided an error, and what only
// warns stands in the output of the case. An error is that of the writer.
func (r *Report) WriteJUnit(w io.Writer) error {
	all := junitSuites{Name: "kubectl tollgate check"}
	for i := range r.Results {
		result := &r.Results[i]
		of := result.Position.File
		if of == "" {
			of = "cluster"
		}
		all.add(of, r.junitResult(of, result))
	}
	for i := range r.Cases {
		all.add(r.Cases[i].Test, junitOf(&r.Cases[i]))
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return fmt.Errorf("write JUnit: %w", err)
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	err := encoder.Encode(all)
	if err == nil {
		_, err = io.WriteString(w, "\n")
	}
	if err != nil {
		return fmt.Errorf("write JUnit: %w", err)
	}
	return nil
}

// add adds a case to the suite of its name.
func (s *junitSuites) add(name string, c junitCase) {
	last := len(s.Suites) - 1
	if last < 0 || s.Suites[last].Name != name {
		s.Suites = append(s.Suites, junitSuite{Name: name})
		last++
	}
	suite := &s.Suites[last]
	suite.Cases = append(suite.Cases, c)
	suite.Tests++
	s.Tests++
	if c.Failure != nil {
		suite.Failures++
		s.Failures++
	}
	if c.Error != nil {
		suite.Errors++
		s.Errors++
	}
}

func (r *Report) junitResult(of string, result *Result) junitCase {
	c := junitCase{Class: of, Name: result.String(), File: result.Position.File, Line: result.Position.Line}
	switch result.Verdict {
	case Denied:
		c.Failure = &junitProblem{first(result), "denied", details(result)}
	case Undecided:
		c.Error = &junitProblem{result.Message, "undecided", result.Message}
	case Warned, Allowed:
		c.Output = details(result)
	}
	return c
}

func junitOf(c *ReportedCase) junitCase {
	out := junitCase{Class: c.Test, Name: c.Name, File: c.Position.File, Line: c.Position.Line}
	if c.Failure != "" {
		out.Failure = &junitProblem{c.Failure, "unexpected", details(&c.Result)}
	}
	return out
}

// first returns in short why an object is denied.
func first(result *Result) string {
	for i := range result.Findings {
		if f := &result.Findings[i]; f.Denies() {
			return strings.TrimPrefix(f.Policy+": ", ": ") + f.Field + ": " + f.Message()
		}
	}
	return result.Message
}

// details returns all that is said of an object, a line for each.
func details(result *Result) string {
	var b strings.Builder
	for i := range result.Findings {
		f := &result.Findings[i]
		b.WriteString(strings.TrimPrefix(f.Policy+": ", ": ") + f.Field + ": " + f.Message() + "\n")
	}
	for _, warning := range result.Warnings {
		b.WriteString(warning + "\n")
	}
	return b.String()
}
