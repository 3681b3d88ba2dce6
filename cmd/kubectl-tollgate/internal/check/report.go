package check

import (
	"fmt"
	"strings"
)

// Report is what was found.
type Report struct {
	// By is who was taken to create the objects; empty where nobody was, because they
	// stand in a cluster or in tests.
	By string `json:"by,omitempty"`
	// Policies is how many there are, and Skipped how many objects were of kinds that are
	// not judged, or in namespaces that Tollgate is not asked about.
	Policies int `json:"policies"`
	Skipped  int `json:"skipped"`
	// Unlisted is how many objects were judged that are allowed and not among the results.
	Unlisted int `json:"unlisted,omitempty"`
	// Results are those of objects, and Cases those of tests. There may be both.
	Results []Result       `json:"results"`
	Cases   []ReportedCase `json:"cases,omitempty"`
	// Notes say what the verdicts hang on that is not known.
	Notes []string `json:"notes,omitempty"`
}

// ReportedCase is the outcome of one expectation of a test.
type ReportedCase struct {
	Position Position `json:"-"`
	// Test is the name of the test, Name that of the case.
	Test string `json:"test"`
	Name string `json:"name"`
	// Result is what came about, and Failure says in what it is not what was expected; it
	// is empty for a case that passed.
	Result  Result `json:"result"`
	Failure string `json:"failure,omitempty"`
}

// Count returns how many results have a verdict.
func (r *Report) Count(verdict Verdict) int {
	count := 0
	if verdict == Allowed {
		count = r.Unlisted
	}
	for i := range r.Results {
		if r.Results[i].Verdict == verdict {
			count++
		}
	}
	return count
}

// Failed returns how many cases did not come out as expected.
func (r *Report) Failed() int {
	count := 0
	for i := range r.Cases {
		if r.Cases[i].Failure != "" {
			count++
		}
	}
	return count
}

// Summary says in a line what was found.
func (r *Report) Summary() string {
	var parts []string
	if len(r.Results)+r.Unlisted+r.Skipped > 0 || len(r.Cases) == 0 {
		parts = append(parts, r.objects())
	}
	if len(r.Cases) > 0 {
		failed := r.Failed()
		parts = append(parts, fmt.Sprintf("%s: %d passed, %d failed", counted(len(r.Cases), "case"), len(r.Cases)-failed, failed))
	}
	return strings.Join(parts, "; ")
}

func (r *Report) objects() string {
	text := counted(len(r.Results)+r.Unlisted, "object") + " judged by " + policies(r.Policies)
	var verdicts []string
	for _, v := range []struct {
		verdict Verdict
		words   string
	}{
		{Allowed, "allowed"},
		{Warned, "allowed with warnings"},
		{Denied, "denied"},
		{Undecided, "undecided"},
	} {
		if count := r.Count(v.verdict); count > 0 {
			verdicts = append(verdicts, fmt.Sprintf("%d %s", count, v.words))
		}
	}
	if len(verdicts) > 0 {
		text += ": " + strings.Join(verdicts, ", ")
	}
	if r.Skipped > 0 {
		text += fmt.Sprintf("; %d not judged", r.Skipped)
	}
	return text
}

func policies(n int) string {
	if n == 1 {
		return "1 policy"
	}
	return fmt.Sprintf("%d policies", n)
}

func counted(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
