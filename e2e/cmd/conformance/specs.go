package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed specs.yaml
var specsFile []byte

// selection says which specs of Kubernetes run.
type selection struct {
	Groups   []group   `json:"groups"`
	LeaveOut []leftOut `json:"leaveOut"`
}

// group is a row of the table.
type group struct {
	// Name is what the specs are about.
	Name string `json:"name"`
	// Specs matches the text of the specs, which begins with the special interest group that owns them.
	Specs pattern `json:"specs"`
}

// leftOut are specs of the groups that do not run.
type leftOut struct {
	// Name says in words which specs they are.
	Name string `json:"name"`
	// Specs matches their text.
	Specs pattern `json:"specs"`
	// Why is what they need and is not there.
	Why string `json:"why"`
}

// pattern is a regular expression that is compiled when it is read.
type pattern struct{ *regexp.Regexp }

// UnmarshalText compiles the expression.
func (p *pattern) UnmarshalText(text []byte) error {
	compiled, err := regexp.Compile(string(text))
	if err != nil {
		return fmt.Errorf("compile pattern of specs: %w", err)
	}
	p.Regexp = compiled
	return nil
}

// readSelection returns the groups that have a text in their name, and what they leave out.
func readSelection(file []byte, named string) (*selection, error) {
	var all selection
	if err := yaml.UnmarshalStrict(file, &all); err != nil {
		return nil, fmt.Errorf("read specs.yaml: %w", err)
	}
	selected := selection{LeaveOut: all.LeaveOut}
	for _, g := range all.Groups {
		if strings.Contains(g.Name, named) {
			selected.Groups = append(selected.Groups, g)
		}
	}
	if len(selected.Groups) == 0 {
		return nil, fmt.Errorf("select specs: no group of specs.yaml has %q in its name", named)
	}
	return &selected, nil
}

// flags are the flags of Ginkgo that run what is selected.
func (s *selection) flags() []string {
	var flags []string
	for _, g := range s.Groups {
		flags = append(flags, "--focus="+g.Specs.String())
	}
	for _, l := range s.LeaveOut {
		flags = append(flags, "--skip="+l.Specs.String())
	}
	return flags
}

// group returns the position of the first group that has the spec, or -1.
func (s *selection) group(spec string) int {
	for i := range s.Groups {
		if s.Groups[i].Specs.MatchString(spec) {
			return i
		}
	}
	return -1
}

// leavesOut returns the position of the first entry that leaves the spec out, or -1.
func (s *selection) leavesOut(spec string) int {
	for i := range s.LeaveOut {
		if s.LeaveOut[i].Specs.MatchString(spec) {
			return i
		}
	}
	return -1
}
