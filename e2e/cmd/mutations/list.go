package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed mutations.yaml
var list []byte

// mutation is a fault and the tests of which one must fail.
type mutation struct {
	// Name is a sentence that says what the fault is.
	Name string `json:"name"`
	// Rule is the rule or the invariant that the fault breaks, or what is promised otherwise.
	Rule string `json:"rule"`
	// File is the path of the source file in the repository.
	File string `json:"file"`
	// Old is a text that the file has once, New is what stands there instead.
	Old string `json:"old"`
	New string `json:"new"`
	// Packages are the folders of the tests; empty is that of the file.
	Packages []string `json:"packages,omitempty"`
	// Run is the pattern of the tests, as go test -run takes it; empty is all.
	Run string `json:"run,omitempty"`
}

func readList() ([]mutation, error) {
	var mutations []mutation
	if err := yaml.UnmarshalStrict(list, &mutations); err != nil {
		return nil, fmt.Errorf("read mutations.yaml: %w", err)
	}
	return mutations, nil
}

// packages returns the folders of the tests.
func (m *mutation) packages() []string {
	if len(m.Packages) > 0 {
		return m.Packages
	}
	return []string{path.Dir(m.File)}
}

var (
	errTest    = errors.New("a fault of a test shows nothing")
	errNothing = errors.New("old and new are the same")
)

// mutated returns the file with the fault. An error says that the list is wrong, or older
// than the file.
func (m *mutation) mutated(root string) ([]byte, error) {
	switch {
	case strings.HasSuffix(m.File, "_test.go"):
		return nil, errTest
	case m.Old == m.New:
		return nil, errNothing
	}
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File))) //nolint:gosec // The list is part of the repository.
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	if found := strings.Count(string(content), m.Old); m.Old == "" || found != 1 {
		return nil, fmt.Errorf("%s has the old text %d times, and not once", m.File, found)
	}
	return []byte(strings.Replace(string(content), m.Old, m.New, 1)), nil
}
