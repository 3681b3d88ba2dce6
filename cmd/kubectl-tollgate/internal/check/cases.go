package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

// Kind is what a test calls itself; its apiVersion is that of Tollgate's configuration.
const Kind = "PolicyTest"

// Test is a PolicyTest. Paths in it are relative to its file.
type Test struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	// Policies are files and directories with policies, which are in force beside those of
	// the command line.
	Policies []string `json:"policies,omitempty"`
	// Manifests are files and directories with what there is besides: namespaces with
	// their labels, nodes, roles.
	Manifests []string `json:"manifests,omitempty"`
	// Namespace is that of objects that name none, "default" if it is left out.
	Namespace string `json:"namespace,omitempty"`
	Cases     []Case `json:"cases"`

	position Position
}

// Case is one expectation.
type Case struct {
	Name string `json:"name"`
	// As and Groups are who creates the objects; nobody in particular if left out.
	As     string   `json:"as,omitempty"`
	Groups []string `json:"groups,omitempty"`
	// Object is what is created, or Manifest a file with it. All objects of a file have to
	// come out as expected.
	Object   json.RawMessage `json:"object,omitempty"`
	Manifest string          `json:"manifest,omitempty"`
	// Expect is allowed, warned or denied. What is warned is allowed too, but is not
	// expected where allowed is.
	Expect Verdict `json:"expect"`
	// Policy is one that has to have something against it, as Kind/name.
	Policy string `json:"policy,omitempty"`
	// Message is what has to stand in a refusal or a warning.
	Message string `json:"message,omitempty"`
}

// ReadCases returns the tests in files and directories. Other documents in them are left out, but
// it is an error if there is no test at all.
func ReadCases(paths []string) ([]Test, error) {
	var tests []Test
	for _, path := range paths {
		files, err := Files(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			objects, err := ReadManifests([]string{file}, strings.NewReader(""))
			if err != nil && !IsNotObject(err) {
				return nil, err
			}
			for i := range objects {
				if objects[i].GetKind() != Kind {
					continue
				}
				test, err := read(&objects[i])
				if err != nil {
					return nil, fmt.Errorf("%s: %w", objects[i].Position, err)
				}
				tests = append(tests, *test)
			}
		}
	}
	if len(tests) == 0 {
		return nil, fmt.Errorf("there is no %s of %s in %s", Kind, configv1alpha1.APIVersion, strings.Join(paths, ", "))
	}
	return tests, nil
}

func read(object *Object) (*Test, error) {
	test := &Test{position: object.Position}
	if object.GetAPIVersion() != configv1alpha1.APIVersion {
		return nil, fmt.Errorf("apiVersion is %q, want %q", object.GetAPIVersion(), configv1alpha1.APIVersion)
	}
	if err := DecodeStrict(object.Unstructured, test); err != nil {
		return nil, err
	}
	if test.Metadata.Name == "" {
		return nil, errors.New("metadata.name: a test has to have a name")
	}
	if len(test.Cases) == 0 {
		return nil, errors.New("cases: there are none")
	}
	for i := range test.Cases {
		if err := test.Cases[i].validate(); err != nil {
			return nil, fmt.Errorf("cases[%d]: %w", i, err)
		}
	}
	return test, nil
}

func (c *Case) validate() error {
	switch {
	case c.Name == "":
		return errors.New("name: a case has to have a name")
	case (len(c.Object) == 0) == (c.Manifest == ""):
		return errors.New("give either object or manifest")
	}
	switch c.Expect {
	case Allowed, Warned, Denied:
		return nil
	case Undecided:
	}
	return fmt.Errorf("expect is %q, want %s, %s or %s", c.Expect, Allowed, Warned, Denied)
}

// objects returns what a case creates.
func (t *Test) objects(c *Case) ([]Object, error) {
	if c.Manifest != "" {
		return ReadManifests(t.relative([]string{c.Manifest}), strings.NewReader(""))
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(c.Object, &object.Object); err != nil {
		return nil, fmt.Errorf("object: %w", err)
	}
	if object.GetAPIVersion() == "" || object.GetKind() == "" {
		return nil, errors.New("object: apiVersion and kind have to be given")
	}
	return []Object{{Position: t.position, Unstructured: object}}, nil
}

// relative returns paths as seen from where the program runs.
func (t *Test) relative(paths []string) []string {
	out := make([]string, 0, len(paths))
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(t.position.File), path)
		}
		out = append(out, path)
	}
	return out
}
