package tollgate_test

import (
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ARCHITECTURE.md has a row for each package, and none for a package that is not there.
func TestTheMapNamesEachPackage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("ARCHITECTURE.md")
	require.NoError(t, err)
	var named []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		named = append(named, row[1])
	}
	packages := map[string]bool{}
	for file := range imports(t) {
		if folder := path.Dir(file); folder != "." && !strings.HasPrefix(folder, "e2e") && !strings.HasSuffix(file, "_test.go") {
			packages[folder] = true
		}
	}
	slices.Sort(named)
	require.Equal(t, slices.Sorted(maps.Keys(packages)), named)
}

// The walks name files that are there.
func TestTheMapNamesFilesThatAreThere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("ARCHITECTURE.md")
	require.NoError(t, err)
	found := regexp.MustCompile("`([a-z0-9_/.-]+/[a-z0-9_]+\\.(?:go|md))`").FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, found)
	for _, name := range found {
		require.FileExists(t, name[1])
	}
}
