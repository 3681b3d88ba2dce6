package tollgate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
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

// The walk from a taint to a deletion is as short as ARCHITECTURE.md shows, and names functions that are
// there.
func TestTheWalkOfAnEvictionIsShort(t *testing.T) {
	t.Parallel()
	const most, longest = 25, 60
	text, err := os.ReadFile("ARCHITECTURE.md")
	require.NoError(t, err)
	lines := linesOfFunctions(t, "evictor", "evictor/*", "tracker", "tracker/informer")
	named := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| \d+ \| ([^|]+) \|`).FindAllStringSubmatch(string(text), -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			named[name[1]] = true
			require.Contains(t, lines, name[1])
			require.LessOrEqual(t, lines[name[1]], longest, name[1])
		}
	}
	require.NotEmpty(t, named)
	require.LessOrEqual(t, len(named), most)
}

// linesOfFunctions returns how many lines the functions of folders have, by Type.Method or package.Function.
func linesOfFunctions(t *testing.T, folders ...string) map[string]int {
	t.Helper()
	lines, set := map[string]int{}, token.NewFileSet()
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		require.NoError(t, err)
		for _, name := range files {
			file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, declared := range file.Decls {
				if f, ok := declared.(*ast.FuncDecl); ok {
					lines[of(file, f)+"."+f.Name.Name] = set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1
				}
			}
		}
	}
	return lines
}

// of returns the type of a method, or the package of another function.
func of(file *ast.File, f *ast.FuncDecl) string {
	if f.Recv == nil {
		return file.Name.Name
	}
	var name string
	ast.Inspect(f.Recv.List[0].Type, func(node ast.Node) bool {
		if id, ok := node.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return true
	})
	return name
}
