package check

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy"
)

// Kind is the kind of a test; its apiVersion is that of Tollgate's configuration.
const Kind = "PolicyTest"

// Test is a PolicyTest. Paths in it are relative to its file.
type Test struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	// Policies are files and directories with policies, which are in force with those of the
	// command line.
	Policies []string `json:"policies,omitempty"`
	// Manifests are files and directories with other objects: namespaces with their labels, nodes,
	// roles.
	Manifests []string `json:"manifests,omitempty"`
	// Namespace is the default namespace of objects, "default" if empty.
	Namespace string `json:"namespace,omitempty"`
	Cases     []Case `json:"cases"`

	position cli.Position
}

// Case has objects and the expected result.
type Case struct {
	Subject `json:",inline"`

	Name string `json:"name"`
	// Object is the created object, or Manifest a file with objects, which must all have the
	// expected result.
	Object   json.RawMessage `json:"object,omitempty"`
	Manifest string          `json:"manifest,omitempty"`
	// Expect is allowed, warned or denied. The verdict must be equal.
	Expect Verdict `json:"expect"`
	// Policy is the Kind/name of a policy that must have a finding.
	Policy string `json:"policy,omitempty"`
	// Message must be part of a refusal or a warning.
	Message string `json:"message,omitempty"`
}

// readTests returns the tests in files and directories. Other documents are ignored; no test is an
// error.
func readTests(paths []string) ([]*Test, error) {
	objects, err := cli.ReadManifests(paths, strings.NewReader(""))
	if err != nil {
		return nil, err
	}
	var tests []*Test
	for _, object := range objects {
		if object.GetKind() != Kind {
			continue
		}
		test := &Test{position: object.Position}
		if err := test.read(object.Unstructured); err != nil {
			return nil, fmt.Errorf("%s: %w", object.Position, err)
		}
		tests = append(tests, test)
	}
	if len(tests) == 0 && len(paths) > 0 {
		return nil, fmt.Errorf("there is no %s of %s in %s", Kind, configv1alpha1.APIVersion, strings.Join(paths, ", "))
	}
	return tests, nil
}

// read reads a valid test.
func (t *Test) read(object *unstructured.Unstructured) error {
	if object.GetAPIVersion() != configv1alpha1.APIVersion {
		return fmt.Errorf("apiVersion is %q, want %q", object.GetAPIVersion(), configv1alpha1.APIVersion)
	}
	if err := cli.DecodeStrict(object, t); err != nil {
		return err
	}
	if t.Metadata.Name == "" {
		return errors.New("metadata.name: a test has to have a name")
	}
	if len(t.Cases) == 0 {
		return errors.New("cases: there are none")
	}
	for i, c := range t.Cases {
		switch {
		case c.Name == "":
			return fmt.Errorf("cases[%d]: name: a case has to have a name", i)
		case (len(c.Object) == 0) == (c.Manifest == ""):
			return fmt.Errorf("cases[%d]: give either object or manifest", i)
		case !slices.Contains([]Verdict{Allowed, Warned, Denied}, c.Expect):
			return fmt.Errorf("cases[%d]: expect is %q, want allowed, warned or denied", i, c.Expect)
		}
	}
	return nil
}

// readFiles returns the objects in files and directories. Paths may be relative to the file of the test.
func (t *Test) readFiles(paths ...string) ([]cli.Object, error) {
	var found []string
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(t.position.File), path)
		}
		found = append(found, path)
	}
	return cli.ReadManifests(found, nil)
}

// Run runs a test. The error is one of the test itself, not of its expectations.
func (t *Test) Run(ctx context.Context, options Options) (outcomes []ReportedCase, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s %s: %w", Kind, t.Metadata.Name, err)
		}
	}()
	policies, err := t.readFiles(t.Policies...)
	if err == nil {
		options.Policies, err = options.Policies.With(policies)
	}
	if err != nil {
		return nil, err
	}
	others, err := t.readFiles(t.Manifests...)
	if err != nil {
		return nil, err
	}
	options.Objects = slices.Concat(options.Objects, policies, others)
	options.Namespace = cmp.Or(t.Namespace, "default")
	for _, c := range t.Cases {
		found, err := t.runCase(ctx, &c, options)
		if err != nil {
			return nil, fmt.Errorf("case %q: %w", c.Name, err)
		}
		outcomes = append(outcomes, found...)
	}
	return outcomes, nil
}

// runCase judges the objects of a case. A review may read all of them.
func (t *Test) runCase(ctx context.Context, c *Case, options Options) ([]ReportedCase, error) {
	object := &unstructured.Unstructured{}
	objects := []cli.Object{{Position: t.position, Unstructured: object}}
	var err error
	if c.Manifest != "" {
		objects, err = t.readFiles(c.Manifest)
	} else if err = json.Unmarshal(c.Object, &object.Object); err != nil {
		err = fmt.Errorf("object: %w", err)
	} else if object.GetAPIVersion() == "" || object.GetKind() == "" {
		err = errors.New("object: apiVersion and kind have to be given")
	}
	if err != nil {
		return nil, err
	}
	options.Objects = slices.Concat(options.Objects, objects)
	checker, err := NewChecker(options)
	if err != nil {
		return nil, err
	}
	var outcomes []ReportedCase
	for _, object := range objects {
		if !checker.Judged(object.Unstructured) {
			continue
		}
		result := checker.Judge(ctx, object, c.Subject)
		name := c.Name
		if len(objects) > 1 {
			name += " (" + result.String() + ")"
		}
		result.Position = cli.Position{} // The position of the test is reported.
		outcomes = append(outcomes, ReportedCase{
			Position: t.position, Test: t.Metadata.Name, Name: name, Result: result, Failure: c.failure(&result),
		})
	}
	if len(outcomes) == 0 {
		return nil, errors.New("none of the objects is of a kind, or in a namespace, that Tollgate is asked about")
	}
	return outcomes, nil
}

// failure returns how a result differs from the expected one, empty if it does not.
func (c *Case) failure(result *Result) string {
	if result.Verdict != c.Expect {
		return fmt.Sprintf("%s is %s, expected %s", result, result.Verdict, c.Expect)
	}
	if c.Policy != "" && !slices.ContainsFunc(result.Findings, func(f policy.Finding) bool { return f.Policy == c.Policy }) {
		return fmt.Sprintf("%s has nothing against %s, expected that it has", c.Policy, result)
	}
	texts := append([]string{result.Message}, result.Warnings...)
	for _, f := range result.Findings {
		texts = append(texts, messageOf(&f))
	}
	if !strings.Contains(strings.Join(texts, "\n"), c.Message) {
		return fmt.Sprintf("nothing that is said of %s contains %q", result, c.Message)
	}
	return ""
}
