package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Run runs a test. Options are what there is beside what the test brings: they are not
// changed. It returns how many policies were in force. An error is one of the test itself,
// not of what it expects.
func (t *Test) Run(ctx context.Context, options Options) ([]ReportedCase, int, error) {
	fail := func(err error) ([]ReportedCase, int, error) {
		return nil, 0, fmt.Errorf("%s %s: %w", Kind, t.Metadata.Name, err)
	}
	policies, err := ReadManifests(t.relative(t.Policies), strings.NewReader(""))
	if err != nil {
		return fail(err)
	}
	if options.Policies, err = options.Policies.With(policies); err != nil {
		return fail(err)
	}
	around, err := ReadManifests(t.relative(t.Manifests), strings.NewReader(""))
	if err != nil {
		return fail(err)
	}
	options.Objects = slices.Concat(options.Objects, policies, around)
	options.Namespace = cmp.Or(t.Namespace, "default")
	var outcomes []ReportedCase
	for i := range t.Cases {
		found, err := t.runCase(ctx, &t.Cases[i], options)
		if err != nil {
			return fail(fmt.Errorf("case %q: %w", t.Cases[i].Name, err))
		}
		outcomes = append(outcomes, found...)
	}
	return outcomes, options.Policies.Len(), nil
}

// runCase judges what a case creates: in a world of its own, where the others of the same
// file are.
func (t *Test) runCase(ctx context.Context, c *Case, options Options) ([]ReportedCase, error) {
	objects, err := t.objects(c)
	if err != nil {
		return nil, err
	}
	options.Objects = slices.Concat(options.Objects, objects)
	checker, err := NewChecker(options)
	if err != nil {
		return nil, err
	}
	var outcomes []ReportedCase
	for i := range objects {
		if !checker.Judged(objects[i].Unstructured) {
			continue
		}
		result := checker.Judge(ctx, objects[i], Subject{User: c.As, Groups: c.Groups})
		name := c.Name
		if len(objects) > 1 {
			name += " (" + result.String() + ")"
		}
		outcomes = append(outcomes, ReportedCase{
			Position: t.position, Test: t.Metadata.Name, Name: name, Result: result, Failure: c.failure(&result),
		})
	}
	if len(outcomes) == 0 {
		return nil, errors.New("none of the objects is of a kind, or in a namespace, that Tollgate is asked about")
	}
	return outcomes, nil
}

// failure says in what a result is not what is expected, and is empty where it is.
func (c *Case) failure(result *Result) string {
	if result.Verdict != c.Expect {
		return fmt.Sprintf("%s is %s, expected %s", result, result.Verdict, c.Expect)
	}
	if c.Policy != "" && !slices.ContainsFunc(result.Findings, func(f Finding) bool { return f.Policy == c.Policy }) {
		return fmt.Sprintf("%s has nothing against %s, expected that it has", c.Policy, result)
	}
	if c.Message != "" && !strings.Contains(said(result), c.Message) {
		return fmt.Sprintf("nothing that is said of %s contains %q", result, c.Message)
	}
	return ""
}

// said is all that a user would be told.
func said(result *Result) string {
	lines := append([]string{result.Message}, result.Warnings...)
	for i := range result.Findings {
		lines = append(lines, result.Findings[i].Message())
	}
	return strings.Join(lines, "\n")
}
