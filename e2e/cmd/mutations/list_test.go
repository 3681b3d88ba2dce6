package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
)

// atLeast is how many faults "make mutations" says that it plays.
const atLeast = 60

func TestEveryFaultOfTheListCanBePlayed(t *testing.T) {
	t.Parallel()
	root, err := binaries.Root(".")
	require.NoError(t, err)
	mutations, err := readList()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(mutations), atLeast)

	named := map[string]bool{}
	for i := range mutations {
		m := &mutations[i]
		t.Run(m.Name, func(t *testing.T) {
			require.NotEmpty(t, m.Name)
			require.False(t, named[m.Name], "the name is there twice")
			named[m.Name] = true
			require.NotEmpty(t, m.Rule)
			require.NotContains(t, m.Name, "\n")
			_, err := m.mutated(root)
			require.NoError(t, err, "the source has changed: correct the fault or replace it")
			_, err = regexp.Compile(m.Run)
			require.NoError(t, err)
			for _, folder := range m.packages() {
				tests, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*_test.go"))
				require.NoError(t, err)
				require.True(t, hasTest(t, tests, m.Run), "%s has no test that %q selects", folder, m.Run)
			}
		})
	}
}

var declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// hasTest reports whether files declare a test that a pattern selects.
func hasTest(t *testing.T, files []string, pattern string) bool {
	t.Helper()
	outer, _, _ := strings.Cut(pattern, "/")
	selects := regexp.MustCompile(outer)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range declared.FindAllSubmatch(content, -1) {
			if selects.Match(found[1]) {
				return true
			}
		}
	}
	return false
}

func TestAFaultThatDoesNotFitItsFileIsAnError(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "a.go"), []byte("package a // one two two"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "a_test.go"), []byte("package a // one"), 0o600))
	for _, test := range []struct {
		name      string
		in        mutation
		want, err string
	}{
		{"the text that is there once is replaced", mutation{File: "a.go", Old: "one", New: "1"}, "package a // 1 two two", ""},
		{"a text that is not there is stale", mutation{File: "a.go", Old: "three", New: "3"}, "", "a.go has the old text 0 times"},
		{"a text that is there twice is not definite", mutation{File: "a.go", Old: "two", New: "2"}, "", "a.go has the old text 2 times"},
		{"an empty text is not definite", mutation{File: "a.go", New: "2"}, "", "the old text"},
		{"a file that is not there is stale", mutation{File: "b.go", Old: "one", New: "1"}, "", "read source"},
		{"a fault that changes nothing is none", mutation{File: "a.go", Old: "one", New: "one"}, "", errNothing.Error()},
		{"a fault of a test is none", mutation{File: "a_test.go", Old: "one", New: "1"}, "", errTest.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := test.in.mutated(root)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, string(got))
		})
	}
}
